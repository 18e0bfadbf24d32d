// tree_test.cpp: where a rank hangs in the tree when its parent is gone, and whom it takes
// below it.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/tree.hpp"

#include <gtest/gtest.h>

#include "control/tree/evidence.hpp"
#include "control/tree/shape.hpp"
#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

using test::address_of;
using test::FakeNetwork;
using test::options_of;

// A tree alone: its owner only writes down what it is told.
struct Hanging : ::testing::Test, Tree::Owner {
  static constexpr int kRank = 20, kSize = 40;  // its place is below rank 1
  Self self{options_of(kRank, kSize), {}};
  FakeNetwork network{self};
  Census census{self};
  Tree tree{self, census, network, *this};

  std::vector<std::pair<int, int>> suspected;  // rank, evidence
  std::set<int> silent;
  std::vector<int> children;
  int parents = 0, coordinator = 0;

  Hanging() {
    self.phase = Phase::running;
    self.now_ms = 1000;
    self.job = 77;
    for (int r = 0; r < kSize; r++) census.members.push_back({address_of(r), 100 + r, "h"});
    Channel& parent = network.add(Role::parent, 1);
    parent.joined = true;
    tree.set_parent(parent);
  }
  void suspect(int rank, uint8_t evidence, const std::string&) override {
    suspected.emplace_back(rank, evidence);
  }
  bool known_silent(int rank) const override { return silent.count(rank) > 0; }
  void neighbour_came() override {}
  void child_came(Channel& channel, const Attach&) override { children.push_back(channel.rank); }
  void parent_came(Channel&, const Welcome&) override { parents++; }
  void became_coordinator() override { coordinator++; }

  void lose_parent(bool attached, End end) {
    const Channel* const parent = tree.parent();
    const int rank = parent->rank;
    tree.forget(*parent);
    tree.parent_lost(rank, attached, end, "gone");
  }
  Attach attach_of(int rank) const { return {rank, kSize, 77, true, {}, {}, {}}; }
};

TEST_F(Hanging, AParentThatIsGoneIsReplacedByTheLowestRankAlive) {
  census.dead = {0, 1};
  census.decision = {SENNIT_PEER_FAILED, "ranks 0-1 died"};
  census.left = {2};
  lose_parent(true, End::closed);
  EXPECT_EQ(suspected, (std::vector<std::pair<int, int>>{{1, kClosed}}));
  EXPECT_EQ(network.connects, std::vector<int>{3});
  Channel& parent = *tree.parent();
  tree.parent_opened(parent);
  const auto said = network.take<Attach>();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].first, 3);
  EXPECT_EQ(said[0].second.left, std::set<int>{2});
  EXPECT_FALSE(tree.send_up(encode(Joined{}))) << "not welcomed yet";
  tree.on_welcome(parent, {});
  EXPECT_EQ(parents, 1);
  EXPECT_TRUE(tree.send_up(encode(Joined{})));
}

TEST_F(Hanging, CandidatesThatRefuseAreSkippedAtOnce) {
  network.nobody = {0, 1};
  lose_parent(true, End::closed);
  EXPECT_EQ(network.connects, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(suspected.size(), 3u);
  EXPECT_EQ(census.unreachable, (std::set<int>{0, 1}));
}

TEST_F(Hanging, SilentOnesAreTriedUntilTheTimeout) {
  lose_parent(true, End::closed);
  for (const int64_t ms : {0, 1000, 2000, 900}) {
    self.now_ms += ms;
    lose_parent(false, End::unreachable);
    EXPECT_FALSE(census.gone(0)) << self.now_ms;
    self.now_ms += 20;
    tree.tick();
    EXPECT_TRUE(tree.parent()) << "tries again";
  }
  self.now_ms += 20;
  lose_parent(false, End::unreachable);
  EXPECT_TRUE(census.gone(0));
  EXPECT_EQ(suspected.back(), (std::pair<int, int>{0, kSilent}));
}

TEST_F(Hanging, WhoFindsNobodyIsTheCoordinator) {
  for (int r = 0; r < kRank; r++) network.nobody.insert(r);
  lose_parent(true, End::closed);
  EXPECT_EQ(coordinator, 1);
  EXPECT_TRUE(census.coordinator());
}

TEST_F(Hanging, ThreeSilentOnesMeanThatThisRankIsCutOff) {
  lose_parent(true, End::closed);
  for (int r = 0; r < 3; r++) {
    silent.insert(r);
    self.now_ms += kProbeMs;
    lose_parent(false, End::unreachable);
  }
  EXPECT_EQ(coordinator, 1);
}

TEST_F(Hanging, TakesHigherRanksOfItsJobOnly) {
  const auto refused = [&](int rank, const Attach& attach) {
    Channel& channel = network.add(Role::stranger, rank);
    tree.on_attach(channel, attach);
    return channel.role == Role::visitor && network.take<Refuse>().size() == 1;
  };
  EXPECT_TRUE(refused(19, attach_of(19))) << "a lower rank";
  Attach other = attach_of(30);
  other.job = 78;
  EXPECT_TRUE(refused(30, other)) << "another job";
  other = attach_of(30);
  other.ranks = 41;
  EXPECT_TRUE(refused(30, other)) << "another size";
  other = attach_of(30);
  other.running = false;
  EXPECT_TRUE(refused(30, other)) << "still starting";
  EXPECT_TRUE(children.empty());

  Channel& channel = network.add(Role::stranger, 30);
  tree.on_attach(channel, attach_of(30));
  EXPECT_EQ(children, std::vector<int>{30});
  EXPECT_TRUE(tree.has_child(30));
  tree.flood_down(encode(Heartbeat{}));
  EXPECT_EQ(network.take<Heartbeat>().size(), 1u);
}

TEST_F(Hanging, TheDeadAreToldThatTheyAre) {
  census.dead = {30};
  census.decision = {SENNIT_PEER_FAILED, "rank 30 died"};
  tree.on_attach(network.add(Role::stranger, 30), attach_of(30));
  const auto said = network.take<Welcome>();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].second.dead, std::set<int>{30});
  EXPECT_FALSE(tree.has_child(30));
}

TEST_F(Hanging, HeartbeatsGoOutWhenNothingElseDoes) {
  self.now_ms += self.heartbeat_ms - 1;
  tree.tick();
  EXPECT_TRUE(network.take<Heartbeat>().empty());
  self.now_ms += 1;
  tree.tick();
  EXPECT_EQ(network.take<Heartbeat>().size(), 1u);
  tree.tick();
  EXPECT_TRUE(network.take<Heartbeat>().empty());
}

TEST_F(Hanging, ASilentParentIsGivenUp) {
  self.now_ms += self.options.heartbeat_timeout_ms;
  tree.tick();
  EXPECT_EQ(network.connects, std::vector<int>{0});
  EXPECT_EQ(tree.parent()->rank, 0);
}

TEST(Shape, ParentsAreLower) {
  EXPECT_EQ(static_parent(0), -1);
  for (int rank = 1; rank < 1000; rank++) {
    const int parent = static_parent(rank);
    EXPECT_LT(parent, rank);
    bool found = false;
    for_each_static_child(parent, 1000, [&](int child) { found = found || child == rank; });
    EXPECT_TRUE(found) << rank;
  }
}

}  // namespace
}  // namespace sennit::control
