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
  inner.news.tell(5, kBlob);
  inner.news.on_tell({18, 5, kOther});
  const auto up = inner.sender.take_up<Tell>();
  ASSERT_EQ(up.size(), 2u);
  EXPECT_EQ(up[0].rank, 1);
  EXPECT_EQ(up[0].topic, 5);
  EXPECT_EQ(up[1].rank, 18);
  EXPECT_EQ(up[1].blob, kOther);
  EXPECT_TRUE(inner.told.empty());
  One root(0, 20);
  root.news.tell(5, kBlob);
  root.news.on_tell({18, 5, kOther});
  EXPECT_EQ(root.told, (std::vector<std::pair<int, Blob>>{{0, kBlob}, {18, kOther}}));
  EXPECT_TRUE(root.sender.up.empty());
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
