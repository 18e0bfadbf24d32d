// roster_test.cpp: rank 0's list of who has come: who belongs, who waits for its parent, who may
// come again, and who is missing. bootstrap_test has the start as a whole.
//
// ctest not-under-tsan: it has one thread
#include "control/rank/roster.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

using test::address_of;
using test::FakeNetwork;
using test::options_of;

constexpr int kSize = 19;  // ranks 17 and 18 hang below rank 1

struct Enlisting : ::testing::Test, Tree::Owner {
  Self self{options_of(0, kSize), {}};
  FakeNetwork network{self};
  Census census{self};
  Tree tree{self, census, network, *this};
  Roster roster{self, census, network, network, tree};

  void SetUp() override {
    self.now_ms = 1000;
    self.phase = Phase::joining;
    roster.begin();
  }
  static Enlist enlist_of(int rank, int pid = 100) {
    return {rank, kSize, 77, {address_of(rank), pid + rank, "h"}, {}};
  }
  Channel& comes(int rank, int pid = 100) {
    Channel& channel = network.add(Role::stranger, rank);
    EXPECT_TRUE(roster.admits(channel, enlist_of(rank, pid)));
    roster.enlist(channel, enlist_of(rank, pid));
    return channel;
  }
  // Which ranks were told their parent, and which that is.
  std::vector<std::pair<int, int>> told() {
    std::vector<std::pair<int, int>> parents;
    for (const auto& [to, parent] : network.take<Parent>()) parents.emplace_back(to, parent.rank);
    return parents;
  }
  std::string refusal() {
    const auto said = network.take<Refuse>();
    return said.size() == 1 ? said[0].second.status.text() : "";
  }

  // Tree::Owner
  void suspect(int, uint8_t, const std::string&) override {}
  bool known_silent(int) const override { return false; }
  void neighbour_came() override {}
  void child_came(Channel&, const Attach&) override {}
  void parent_came(Channel&, const Welcome&) override {}
  void became_coordinator() override {}
};

using Parents = std::vector<std::pair<int, int>>;

TEST_F(Enlisting, Rank0ItselfHasCome) {
  EXPECT_FALSE(roster.all_arrived());
  EXPECT_EQ(census.members.size(), static_cast<size_t>(kSize));
  EXPECT_EQ(census.members[0].pid, self.pid);
  EXPECT_TRUE(census.members[0].address.loopback());
}

TEST_F(Enlisting, TheChildrenOfRank0KeepTheirConnection) {
  const Channel& channel = comes(2);
  EXPECT_EQ(channel.role, Role::child);
  EXPECT_EQ(told(), (Parents{{2, 0}}));
  EXPECT_TRUE(tree.has_child(2));
}

TEST_F(Enlisting, OthersWaitForTheirParentAndThenGo) {
  const Channel& early = comes(18);
  EXPECT_EQ(early.role, Role::enlisted);
  EXPECT_TRUE(told().empty());
  comes(1);
  EXPECT_EQ(told(), (Parents{{1, 0}, {18, 1}}));
  EXPECT_EQ(early.role, Role::visitor);
  const Channel& late = comes(17);
  EXPECT_EQ(told(), (Parents{{17, 1}})) << "at once: its parent is there";
  EXPECT_EQ(late.role, Role::visitor);
}

TEST_F(Enlisting, TheSameProcessMayComeTwice) {
  const uint64_t first = comes(18).id;
  comes(18);
  EXPECT_FALSE(network.find(first)) << "the older connection is given up";
  comes(1);
  EXPECT_EQ(told(), (Parents{{1, 0}, {18, 1}}));
}

TEST_F(Enlisting, AnotherProcessOfTheSameRankIsTurnedAway) {
  comes(3);
  const Channel& other = comes(3, 500);
  EXPECT_EQ(refusal(),
            "rank 3 (host h, pid 503) has come twice, first as rank 3 (host h, pid 103): is RANK "
            "different on every rank?");
  EXPECT_EQ(other.role, Role::visitor);
  EXPECT_EQ(census.members[3].pid, 103);
}

TEST_F(Enlisting, WhoIsOfAnotherJobIsTurnedAway) {
  Channel& channel = network.add(Role::stranger, 3);
  Enlist other = enlist_of(3);
  other.ranks = 4;
  EXPECT_FALSE(roster.admits(channel, other));
  EXPECT_EQ(refusal(), "rank 3 (host h, pid 103) thinks the job has 4 ranks, but rank 0 says 19");
  other = enlist_of(3);
  other.job = self.job = 77;
  other.job++;
  EXPECT_FALSE(roster.admits(network.add(Role::stranger, 3), other));
  EXPECT_EQ(refusal(), "rank 3 (host h, pid 103) belongs to another job with the same secret");
  other.job = 0;  // it does not know yet
  EXPECT_TRUE(roster.admits(network.add(Role::stranger, 3), other));
}

TEST_F(Enlisting, WhoComesWhenTheJobIsCompleteIsTurnedAway) {
  comes(3);
  self.phase = Phase::running;
  comes(3, 500);
  EXPECT_EQ(refusal(), "the job is complete already, its rank 3 is rank 3 (host h, pid 103)");
}

TEST_F(Enlisting, WhoseConnectionEndedMayComeAsAnotherProcess) {
  const Channel& first = comes(18);
  roster.forget(first);
  network.drop(first.id);
  roster.forget_arrival(18);
  comes(18, 500);
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(census.members[18].pid, 518);
  comes(1);
  EXPECT_EQ(told(), (Parents{{1, 0}, {18, 1}}));
}

TEST_F(Enlisting, TheEndOfAnOlderConnectionDoesNotForgetTheNewerOne) {
  const Channel older = comes(18);
  comes(18);
  roster.forget(older);
  comes(1);
  EXPECT_EQ(told(), (Parents{{1, 0}, {18, 1}}));
}

TEST_F(Enlisting, AllWhoWaitAreTold) {
  comes(2);
  comes(18);
  roster.keep(network.add(Role::stranger, 17), 17);
  roster.tell_waiting(encode(StartFailed{{SENNIT_ABORTED, "over"}}));
  std::set<int> heard;
  for (const auto& [to, failed] : network.take<StartFailed>()) heard.insert(to);
  EXPECT_EQ(heard, (std::set<int>{17, 18})) << "rank 2 hangs in the tree, and is told there";
}

TEST_F(Enlisting, TheMissingAreNamed) {
  for (int rank = 1; rank < 17; rank++)
    if (rank != 7) comes(rank);
  EXPECT_EQ(roster.missing().kind(), SENNIT_TIMED_OUT);
  EXPECT_EQ(
      roster.missing().text(),
      "ranks 7,17-18 did not come within 10000 ms (16 of 19 ranks are here); look at why they "
      "did not start, or raise SENNIT_ARRIVAL_TIMEOUT");
  for (const int rank : {7, 17, 18}) comes(rank);
  EXPECT_TRUE(roster.all_arrived());
  for (int rank = 2; rank < 17; rank++) tree.child(rank)->joined = true;
  EXPECT_NE(roster.missing().text().find("some below rank 1 could not connect to their parent"),
            std::string::npos)
      << roster.missing().text();
}

TEST_F(Enlisting, AddressesInTheTableCanBeReachedByAll) {
  network.near = *parse_address("10.0.0.1", 1000);
  network.far[2] = *parse_address("10.0.0.2", 40'000);
  for (int rank = 1; rank < kSize; rank++) comes(rank);
  const Table table = roster.table();
  EXPECT_EQ(table.members[0].address.host(), "10.0.0.1") << "as rank 2 reached it";
  EXPECT_EQ(table.members[3].address.text(), "10.0.0.1:1003") << "it knew the loopback only";
}

TEST_F(Enlisting, OnOneHostTheLoopbackIsKept) {
  for (int rank = 1; rank < kSize; rank++) comes(rank);
  EXPECT_EQ(roster.table().members[3].address, address_of(3));
}

}  // namespace
}  // namespace sennit::control
