// news_test.cpp: what goes up to the coordinator and down to all, once and in order.
//
// ctest not-under-tsan: it has one thread
#include "control/rank/news.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

using test::FakeSender;
using test::options_of;

struct One {
  std::vector<std::pair<int, Blob>> told;
  std::vector<Blob> announced;
  int lost = 0;
  Self self;
  Census census{self};
  FakeSender sender;
  News news{self, census, sender};

  One(int rank, int size) : self(options_of(rank, size), callbacks()), sender(size) {
    self.phase = Phase::running;
    census.members.resize(static_cast<size_t>(size));
  }
  Control::Callbacks callbacks() {
    Control::Callbacks result;
    result.told = [this](int rank, uint8_t, const Blob& blob) { told.emplace_back(rank, blob); };
    result.announced = [this](uint8_t, const Blob& blob) { announced.push_back(blob); };
    result.may_be_lost = [this] { lost++; };
    return result;
  }
};

const Blob kBlob = {std::byte{7}};
const Blob kOther = {std::byte{8}, std::byte{9}};

TEST(News, GoUpToTheCoordinator) {
  One inner(1, 20);
  inner.news.tell(5, kBlob, true);
  const auto up = inner.sender.take_up<Tell>();
  ASSERT_EQ(up.size(), 1u);
  ASSERT_EQ(up[0].said.size(), 1u);
  EXPECT_EQ(up[0].said[0].rank, 1);
  EXPECT_EQ(up[0].said[0].topic, 5);
  EXPECT_TRUE(inner.told.empty());
  One root(0, 20);
  root.news.tell(5, kBlob, true);
  root.news.on_tell({true, {{18, 5, kOther}}});
  EXPECT_EQ(root.told, (std::vector<std::pair<int, Blob>>{{0, kBlob}, {18, kOther}}));
  EXPECT_TRUE(root.sender.up.empty());
}

TEST(News, OfManyGoUpTogether) {
  One inner(1, 1000);
  for (int rank = 17; rank < 33; rank++) {
    inner.self.now_ms++;
    inner.news.on_tell({true, {{rank, 5, kBlob}, {rank, 6, kOther}}});
    inner.self.next_due_ms = INT64_MAX;
    inner.news.tick();
  }
  EXPECT_TRUE(inner.sender.up.empty());
  EXPECT_EQ(inner.self.next_due_ms, 1 + News::kGatherMs) << "of the first";
  inner.self.now_ms = 1 + News::kGatherMs;
  inner.news.tick();
  const auto up = inner.sender.take_up<Tell>();
  ASSERT_EQ(up.size(), 1u);
  ASSERT_EQ(up[0].said.size(), 32u);
  for (size_t i = 0; i < 32; i++) {
    EXPECT_EQ(up[0].said[i].rank, 17 + static_cast<int>(i) / 2);
    EXPECT_EQ(up[0].said[i].topic, 5 + i % 2) << "of each rank in its order";
  }
  inner.self.now_ms += 10 * News::kGatherMs;
  inner.news.tick();
  EXPECT_TRUE(inner.sender.take_up<Tell>().empty());
}

// A rank's own takes them along: it waits for nothing.
TEST(News, WaitForNoLongerThanTheyMust) {
  One inner(1, 20);
  inner.news.on_tell({true, {{18, 5, kOther}}});
  inner.news.tell(5, kBlob, true);
  auto up = inner.sender.take_up<Tell>();
  ASSERT_EQ(up.size(), 1u);
  ASSERT_EQ(up[0].said.size(), 2u);
  EXPECT_EQ(up[0].said[0].rank, 18);
  EXPECT_EQ(up[0].said[0].blob, kOther);
  EXPECT_EQ(up[0].said[1].rank, 1);

  const Blob large(News::kMostGathered + 1);
  inner.news.on_tell({true, {{18, 5, large}}});
  EXPECT_EQ(inner.sender.take_up<Tell>().size(), 1u);

  inner.news.on_tell({true, {{18, 5, kOther}}});
  inner.news.on_tell({false, {{18, 6, kOther}}});
  up = inner.sender.take_up<Tell>();
  ASSERT_EQ(up.size(), 1u) << "what may not wait";
  EXPECT_FALSE(up[0].may_wait) << "nor at the next rank";
  EXPECT_EQ(up[0].said.size(), 2u);

  inner.news.on_tell({true, {{18, 5, kOther}}});
  inner.self.phase = Phase::leaving;
  inner.news.tick();
  EXPECT_EQ(inner.sender.take_up<Tell>().size(), 1u);
}

TEST(News, WaitForAParent) {
  One inner(1, 20);
  inner.sender.has_parent = false;
  inner.news.on_tell({true, {{18, 5, kOther}}});
  inner.news.tell(6, kBlob, false);
  const Blob large(News::kMostGathered / 2);
  for (int i = 0; i < 3; i++) inner.news.tell(7, large, true);
  EXPECT_TRUE(inner.sender.up.empty());
  inner.sender.has_parent = true;
  inner.news.tell_again();
  const auto up = inner.sender.take_up<Tell>();
  ASSERT_EQ(up.size(), 1u);
  ASSERT_EQ(up[0].said.size(), 1u) << "the oldest are lost where they are too many";
  EXPECT_EQ(up[0].said[0].topic, 7);
  EXPECT_EQ(inner.lost, 1) << "and so its user is asked to say them again";
}

// What was on its way to a coordinator that is gone reaches the new one, if it is this rank.
TEST(News, ReachWhoBecomesCoordinatorMeanwhile) {
  One heir(1, 20);
  heir.news.on_tell({true, {{18, 5, kOther}}});
  heir.census.dead = {0};
  heir.self.now_ms += News::kGatherMs;
  heir.news.tick();
  EXPECT_EQ(heir.told, (std::vector<std::pair<int, Blob>>{{18, kOther}}));
  EXPECT_TRUE(heir.sender.up.empty());
}

TEST(News, OfTheCoordinatorGoDownOnceInOrder) {
  One root(0, 20), inner(1, 20);
  root.news.announce(5, 0, kBlob);
  root.news.announce(6, 0, kOther);
  EXPECT_EQ(root.announced, (std::vector<Blob>{kBlob, kOther}));
  const auto down = root.sender.take_down<Announce>();
  ASSERT_EQ(down.size(), 2u);
  for (int twice = 0; twice < 2; twice++)
    for (const Announce& one : down) inner.news.on_announce(one);
  EXPECT_EQ(inner.announced, (std::vector<Blob>{kBlob, kOther}));
  EXPECT_EQ(inner.sender.take_down<Announce>().size(), 2u);
  inner.news.announce(5, 0, kBlob);
  EXPECT_EQ(inner.announced.size(), 2u) << "it is not the coordinator";
}

TEST(News, OfANewCoordinatorComeAfterThoseOfTheOld) {
  One heir(1, 20), leaf(18, 20);
  heir.news.on_announce({77, 5, 0, kBlob});
  leaf.news.on_announce({77, 5, 0, kBlob});
  heir.census.dead = {0};
  heir.news.tell_again();
  EXPECT_EQ(heir.lost, 1);
  heir.news.announce(5, 0, kOther);
  const auto down = heir.sender.take_down<Announce>();
  ASSERT_EQ(down.size(), 2u);
  leaf.news.on_announce(down[1]);
  EXPECT_EQ(leaf.announced, (std::vector<Blob>{kBlob, kOther}));
}

}  // namespace
}  // namespace sennit::control
