// small_collectives_test.cpp: what one rank sends up and down the tree for an all_gather or a
// broadcast, in whichever order contributions come.
//
// ctest not-under-tsan: it has one thread
#include "control/rank/small_collectives.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

using test::FakeSender;
using test::options_of;

constexpr int64_t kFlushMs = 500;

struct One {
  Self self;
  Census census{self};
  FakeSender sender;
  Callers callers;
  SmallCollectives collectives{self, census, sender, callers};

  One(int rank, int size) : self(options_of(rank, size), {}), sender(size) { self.now_ms = 1000; }
  void after(int64_t ms) {
    self.now_ms += ms;
    collectives.tick();
  }
  Result<Callers::Blobs> result(uint32_t number) {
    return callers.wait_for_result(number, "it", 0);
  }
};

Blob blob_of(int rank) { return Blob(static_cast<size_t>(rank), static_cast<std::byte>(rank)); }

Gather gather(uint32_t number, const std::set<int>& ranks) {
  Gather result{number, {}};
  for (const int rank : ranks) result.blobs[rank] = blob_of(rank);
  return result;
}

TEST(Gathering, AnInnerRankSendsItsSubtreeInOneFrame) {
  One inner(1, 20);  // above ranks 17 to 19
  inner.collectives.on_gather(gather(0, {17}));
  inner.collectives.contribute(0, blob_of(1));
  inner.collectives.on_gather(gather(0, {19}));
  EXPECT_TRUE(inner.sender.up.empty());
  inner.collectives.on_gather(gather(0, {18}));
  const auto up = inner.sender.take_up<Gather>();
  ASSERT_EQ(up.size(), 1u);
  EXPECT_EQ(up[0].blobs, gather(0, {1, 17, 18, 19}).blobs);
}

TEST(Gathering, WhatIsThereGoesUpInPartsWhenSomebodyIsLate) {
  One inner(1, 20);
  inner.collectives.contribute(0, blob_of(1));
  inner.after(kFlushMs - 1);
  EXPECT_TRUE(inner.sender.up.empty());
  inner.after(1);
  EXPECT_EQ(inner.sender.take_up<Gather>().at(0).blobs, gather(0, {1}).blobs);
  inner.collectives.on_gather(gather(0, {17, 18}));
  inner.after(kFlushMs);
  EXPECT_EQ(inner.sender.take_up<Gather>().at(0).blobs, gather(0, {17, 18}).blobs);
}

TEST(Gathering, WithoutAParentItIsKept) {
  One leaf(5, 20);
  leaf.sender.has_parent = false;
  leaf.collectives.contribute(0, blob_of(5));
  leaf.sender.has_parent = true;
  leaf.after(kFlushMs);
  EXPECT_EQ(leaf.sender.take_up<Gather>().at(0).blobs, gather(0, {5}).blobs);
}

TEST(Gathering, Rank0SendsAllDownInTheOrderOfRanks) {
  One root(0, 4);
  root.collectives.on_gather(gather(7, {2, 3}));
  root.collectives.contribute(7, blob_of(0));
  EXPECT_TRUE(root.sender.down.empty());
  root.collectives.on_gather(gather(7, {1, 2}));
  const auto down = root.sender.take_down<Gathered>();
  ASSERT_EQ(down.size(), 1u);
  const Callers::Blobs all = {blob_of(0), blob_of(1), blob_of(2), blob_of(3)};
  EXPECT_EQ(down[0].blobs, all);
  EXPECT_EQ(*root.result(7), all);
}

TEST(Gathering, Rank0NamesWhoDoesNotCome) {
  One root(0, 4);
  root.collectives.on_gather(gather(7, {0, 2}));
  root.after(root.self.options.arrival_timeout_ms);
  const std::string text = "ranks 1,3 did not come to all_gather 7 of the start within 10000 ms";
  EXPECT_EQ(root.sender.take_down<CollectiveOff>().at(0).status.text(), text);
  EXPECT_EQ(root.result(7).status().text(), text);
  root.collectives.on_gather(gather(7, {1, 3}));
  EXPECT_TRUE(root.sender.down.empty()) << "too late";
}

// It has left without a word: the others would wait for it, or for one more that is late, and whom
// it had waited for too long.
TEST(Gathering, EndsWhenOneLeaves) {
  for (const int leaver : {3, 1}) {
    One root(0, 4);
    root.collectives.on_gather(gather(7, {1, 2}));
    root.census.left = {leaver};
    root.after(0);
    const auto off = root.sender.take_down<CollectiveOff>();
    ASSERT_EQ(off.size(), 1u);
    EXPECT_EQ(off[0].number, 7u);
    EXPECT_EQ(off[0].status.kind(), SENNIT_ABORTED);
    const std::string text = "rank " + std::to_string(leaver) + " has left during the start";
    EXPECT_EQ(off[0].status.text(), text);
    EXPECT_EQ(root.result(7).status().text(), text);
    root.collectives.contribute(8, blob_of(0));
    root.after(0);
    EXPECT_EQ(root.result(8).status().text(), text);
  }
}

// Whose start has failed for that leaves, and it is not for its leaving that the others' fail.
TEST(Gathering, WhereOneDiedThatIsSaidThoughOthersHaveLeft) {
  One root(0, 4);
  root.collectives.on_gather(gather(7, {1, 2}));
  root.callers.fail({SENNIT_PEER_FAILED, "rank 3 died"});
  root.census.left = {1};
  root.after(0);
  EXPECT_EQ(root.sender.take_down<CollectiveOff>().at(0).status.text(), "rank 3 died");
  EXPECT_EQ(root.result(7).status().text(), "rank 3 died");
}

// Rank 0, or another one that had waited for it too long.
TEST(Results, DoNotComeWhenSomebodyHasLeft) {
  for (const int leaver : {0, 2}) {
    One inner(1, 4);
    inner.collectives.on_broadcast({2, blob_of(9)});
    inner.census.left = {leaver};
    inner.after(0);
    EXPECT_EQ(*inner.result(2), Callers::Blobs{blob_of(9)}) << "it was here before";
    const Status status = inner.result(3).status();
    EXPECT_EQ(status.kind(), SENNIT_ABORTED);
    EXPECT_EQ(status.text(), "rank " + std::to_string(leaver) + " has left during the start");
  }
}

// Rank 0 has died, and one whose start had not ended has left for that before it is decided.
TEST(Results, WaitForTheDecisionWhereOneIsToCome) {
  One inner(1, 4);
  inner.census.unreachable = {0};
  inner.census.left = {2};
  inner.after(0);
  EXPECT_TRUE(inner.callers.failure().ok()) << inner.callers.failure().text();
  inner.census.dead = {0};
  inner.callers.fail({SENNIT_PEER_FAILED, "rank 0 died"});
  inner.after(0);
  EXPECT_EQ(inner.result(3).status().text(), "rank 0 died");
}

TEST(Results, ArePassedOnAndHandedOver) {
  One inner(1, 4);
  inner.collectives.on_gathered({1, {blob_of(0), blob_of(1), blob_of(2), blob_of(3)}});
  inner.collectives.on_broadcast({2, blob_of(9)});
  inner.collectives.on_off({3, {SENNIT_TIMED_OUT, "rank 2 did not come"}});
  EXPECT_EQ(inner.sender.down.size(), 3u);
  EXPECT_EQ(inner.result(1)->at(3), blob_of(3));
  EXPECT_EQ(*inner.result(2), Callers::Blobs{blob_of(9)});
  EXPECT_EQ(inner.result(3).status().text(), "rank 2 did not come");
  EXPECT_EQ(inner.result(4).status().kind(), SENNIT_TIMED_OUT);
}

}  // namespace
}  // namespace sennit::control
