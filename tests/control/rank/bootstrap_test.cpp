// bootstrap_test.cpp: the start by what was said to one rank: rank 0, who takes down who comes, and
// a rank that looks for its parent. What needs real sockets is in guard_test.
//
// ctest not-under-tsan: it has one thread
#include "control/rank/bootstrap.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_rank.hpp"

namespace sennit::control {
namespace {

using test::address_of;
using test::FakeRank;

const Status kAborted{SENNIT_ABORTED, "aborted here"};

// ---- rank 0 ----

struct Root : ::testing::Test {
  FakeRank rank{0, 19};  // ranks 17 and 18 hang below rank 1
  void SetUp() override { rank.plane.bootstrap().begin(); }
  Channel& enlists(int who, Enlist enlist) {
    Channel& channel = rank.network.add(Role::stranger, who);
    rank.network.say(channel, enlist);
    return channel;
  }
  Enlist enlist_of(int who) const {
    return {who, rank.self.size, rank.self.options.job, FakeRank::member(who), {}};
  }
  std::string refusal() {
    const auto said = rank.network.take<Refuse>();
    return said.size() == 1 ? said[0].second.status.text() : "";
  }
};

TEST_F(Root, TellsEveryRankItsParentWhenThatHasCome) {
  const Channel& early = enlists(17, enlist_of(17));
  EXPECT_EQ(early.role, Role::enlisted);
  EXPECT_TRUE(rank.network.take<Parent>().empty()) << "rank 1 is not here";
  EXPECT_EQ(enlists(1, enlist_of(1)).role, Role::child);
  const auto said = rank.network.take<Parent>();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].second.rank, 0);
  EXPECT_EQ(said[1].first, 17);
  EXPECT_EQ(said[1].second.rank, 1);
  EXPECT_EQ(said[1].second.address, address_of(1));
}

TEST_F(Root, SendsTheTableWhenAllHaveJoined) {
  rank.all_come();
  EXPECT_EQ(rank.self.phase, Phase::running);
  const auto said = rank.network.take<Table>();
  ASSERT_EQ(said.size(), 16u);
  EXPECT_EQ(said[0].second.members[18].address, address_of(18));
  EXPECT_EQ(said[0].second.members[18].pid, 118);
  EXPECT_TRUE(rank.callers.wait_for_start().ok());
}

TEST_F(Root, TurnsAwayWhoDoesNotBelong) {
  Enlist other = enlist_of(3);
  other.ranks = 20;
  enlists(3, other);
  EXPECT_EQ(refusal(),
            "rank 3 (host a host, pid 103) thinks the job has 20 ranks, but rank 0 says 19");
  other = enlist_of(3);
  other.job = 78;
  enlists(3, other);
  EXPECT_EQ(refusal(), "rank 3 (host a host, pid 103) belongs to another job with the same secret");
  enlists(3, enlist_of(3));
  other = enlist_of(3);
  other.member.pid = 5;
  enlists(3, other);
  EXPECT_EQ(refusal(),
            "rank 3 (host a host, pid 5) has come twice, first as rank 3 (host a host, pid 103): "
            "is RANK different on every rank?");
  Enlist self = enlist_of(0);
  self.member.pid = rank.self.pid;
  enlists(0, self);
  EXPECT_NE(refusal().find("has come twice"), std::string::npos) << "another rank 0";
}

TEST_F(Root, ConnectionsThatClaimToBeSomebodyElseEnd) {
  Channel& channel = rank.network.add(Role::stranger, 3);
  const uint64_t id = channel.id;
  rank.network.say(channel, enlist_of(4));
  EXPECT_FALSE(rank.network.find(id));
}

TEST_F(Root, NamesWhoIsMissing) {
  EXPECT_TRUE(rank.plane.bootstrap().prepare().ok());
  for (int r = 1; r < 17; r++)
    if (r != 7) enlists(r, enlist_of(r));
  rank.after(rank.self.options.arrival_timeout_ms);
  EXPECT_EQ(rank.callers.wait_for_start().text(),
            "ranks 7,17-18 did not come within 10000 ms (16 of 19 ranks are here); look at why "
            "they did not start, or raise SENNIT_ARRIVAL_TIMEOUT");
  EXPECT_EQ(rank.network.take<StartFailed>().size(), 15u);
}

TEST_F(Root, AComplaintEndsTheStartForEverybody) {
  enlists(1, enlist_of(1));
  enlists(17, enlist_of(17));
  Enlist complaint = enlist_of(2);
  complaint.complaint = {SENNIT_OUT_OF_RESOURCES, "no file descriptors left"};
  enlists(2, complaint);
  const std::string text = "rank 2 (host a host, pid 102): no file descriptors left";
  EXPECT_EQ(rank.callers.wait_for_start().text(), text);
  for (const auto& [to, failed] : rank.network.take<StartFailed>())
    EXPECT_EQ(failed.status.text(), text) << to;
  EXPECT_EQ(rank.self.phase, Phase::closing);
  EXPECT_FALSE(rank.plane.departure().over(true)) << "those that still come are told";
}

TEST_F(Root, AComplaintWhenTheStartIsCompleteEndsNothing) {
  rank.all_come();
  rank.network.said.clear();
  Enlist complaint = enlist_of(17);
  complaint.complaint = {SENNIT_LINK_FAILED, "cannot reach its parent, rank 1"};
  enlists(17, complaint);
  EXPECT_EQ(rank.self.phase, Phase::running);
  const auto told = rank.network.take<StartFailed>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, 17);
  rank.after(1000);
  EXPECT_EQ(rank.network.take<Leaving>().at(0).second.left, std::set<int>{17});
  complaint.rank = 18;
  complaint.member.pid = 999;
  enlists(18, complaint);  // another process
  rank.after(1000);
  EXPECT_TRUE(rank.network.take<Leaving>().empty());
}

TEST_F(Root, ItsAbortEndsTheStartForEverybody) {
  enlists(1, enlist_of(1));
  enlists(17, enlist_of(17));
  enlists(18, enlist_of(18));
  rank.plane.bootstrap().abort(kAborted);
  EXPECT_EQ(rank.callers.wait_for_start().kind(), SENNIT_ABORTED);
  const auto told = rank.network.take<StartFailed>();
  ASSERT_GE(told.size(), 1u);
  EXPECT_EQ(told[0].first, 1);
  EXPECT_EQ(told[0].second.status.kind(), SENNIT_ABORTED);
  EXPECT_EQ(told[0].second.status.text().find("rank 0 (host "), 0u);
  EXPECT_NE(told[0].second.status.text().find("): aborted here"), std::string::npos);
}

// As it did not know yet that rank 0 has it for its child.
TEST_F(Root, AChildsWordByWhichItCameEndsTheStartForEverybody) {
  Channel& child = enlists(1, enlist_of(1));
  const uint64_t id = child.id;
  enlists(17, enlist_of(17));
  rank.network.say(child, StartFailed{{SENNIT_ABORTED, "rank 1: aborted here"}});
  rank.network.lost(id, End::closed, "closed");
  EXPECT_EQ(rank.callers.wait_for_start().text(), "rank 1: aborted here");
  EXPECT_GE(rank.network.take<StartFailed>().size(), 1u);
}

// Else it would come back when rank 0 is gone, and call rank 0 dead.
TEST_F(Root, WhoWasStillProvingItselfWhenTheStartFailedIsToldWhy) {
  enlists(2, enlist_of(2));
  Channel& slow = rank.network.add(Role::stranger, 3);
  rank.network.lost(rank.channel_of(Role::child, 2).id, End::closed, "connection closed");
  rank.network.take<StartFailed>();
  rank.network.say(slow, enlist_of(3));
  const auto told = rank.network.take<StartFailed>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, 3);
  EXPECT_EQ(told[0].second.status.text(),
            "rank 2 (host a host, pid 102) died during the start (connection closed)");
}

TEST_F(Root, TimeInWhichItDidNotRunIsNotTakenFromThoseWhoStillCome) {
  ASSERT_TRUE(rank.plane.bootstrap().prepare().ok());
  enlists(2, enlist_of(2));
  rank.network.lost(rank.channel_of(Role::child, 2).id, End::closed, "connection closed");
  const int64_t long_ms = 5000;
  rank.self.now_ms += long_ms;
  EXPECT_TRUE(rank.plane.departure().over(true));
  rank.plane.excuse(long_ms);
  EXPECT_FALSE(rank.plane.departure().over(true));
}

// ---- another rank ----

struct Joining : ::testing::Test {
  FakeRank rank{17, 19};
  void SetUp() override {
    ASSERT_TRUE(rank.plane.bootstrap().prepare().ok());
    rank.plane.bootstrap().begin();
    rank.after(0);
  }
};

TEST_F(Joining, AsksRank0AndGoesToItsParent) {
  EXPECT_EQ(rank.network.connects, std::vector<int>{0});
  Channel* const root = rank.network.open_last(0);
  const auto enlist = rank.network.take<Enlist>();
  ASSERT_EQ(enlist.size(), 1u);
  EXPECT_EQ(enlist[0].second.rank, 17);
  EXPECT_EQ(enlist[0].second.member.address.port, address_of(17).port);
  rank.network.say(*root, Parent{5, 1, address_of(1)});
  EXPECT_EQ(rank.network.connects, (std::vector<int>{0, 1}));
  EXPECT_EQ(rank.self.phase, Phase::joining);
  ASSERT_TRUE(rank.network.open_last(1));
  EXPECT_EQ(rank.network.take<Attach>().at(0).second.running, false);
  EXPECT_EQ(rank.network.take<Joined>().size(), 1u) << "a leaf's subtree is complete";
  EXPECT_EQ(rank.self.phase, Phase::waiting);
}

TEST_F(Joining, AParentThatCannotBeIsRefused) {
  Channel* const root = rank.network.open_last(0);
  const uint64_t id = root->id;
  rank.network.say(*root, Parent{5, 2, address_of(2)});
  EXPECT_FALSE(rank.network.find(id));
  EXPECT_EQ(rank.self.phase, Phase::enlisting);
}

TEST_F(Joining, AParentThatCannotBeReachedIsComplainedOf) {
  Channel* root = rank.network.open_last(0);
  rank.network.say(*root, Parent{5, 1, address_of(1)});
  rank.network.lost(rank.channel_of(Role::parent, 1).id, End::refused, "refused");
  rank.after(0);
  root = rank.network.open_last(0);
  ASSERT_TRUE(root) << "asks rank 0 again";
  const auto enlist = rank.network.take<Enlist>();
  ASSERT_EQ(enlist.size(), 2u);
  EXPECT_EQ(enlist[1].second.complaint.text(),
            "cannot reach its parent, rank 1, at 127.0.0.1:1001 (refused): has it died, or is a "
            "firewall in between?");
}

// Rank 0 takes its word by a new connection, and tells it and all others.
TEST_F(Joining, ItsAbortIsSaidToRank0) {
  ASSERT_TRUE(rank.network.open_last(0));
  rank.network.take<Enlist>();
  rank.plane.bootstrap().abort(kAborted);
  const auto told = rank.network.take<StartFailed>();
  ASSERT_EQ(told.size(), 1u) << "rank 0 may have it for a child";
  EXPECT_EQ(told[0].second.status.text().find("rank 17 (host "), 0u);
  rank.after(0);
  Channel* const root = rank.network.open_last(0);
  ASSERT_TRUE(root) << "does not say it";
  const auto enlist = rank.network.take<Enlist>();
  ASSERT_EQ(enlist.size(), 1u);
  EXPECT_EQ(enlist[0].second.complaint.kind(), SENNIT_ABORTED);
  EXPECT_EQ(enlist[0].second.complaint.text(), "aborted here");
  rank.network.say(*root, StartFailed{{SENNIT_ABORTED, "rank 17: aborted here"}});
  EXPECT_EQ(rank.callers.wait_for_start().text(), "rank 17: aborted here");
}

TEST_F(Joining, ItsAbortDoesNotWaitLongForRank0) {
  ASSERT_TRUE(rank.network.open_last(0));
  rank.plane.bootstrap().abort(kAborted);
  rank.after(999);
  EXPECT_TRUE(rank.self.starting());
  rank.after(1);
  EXPECT_EQ(rank.callers.wait_for_start().text(), "aborted here");
}

TEST_F(Joining, ItsAbortIsItsOwnWhereRank0HasNotCome) {
  Channel* const maker = rank.network.open_last(0);
  rank.network.say(*maker, RootAt{});
  rank.network.connects.clear();
  rank.plane.bootstrap().abort(kAborted);
  EXPECT_EQ(rank.callers.wait_for_start().text(), "aborted here");
  EXPECT_TRUE(rank.network.connects.empty());
}

// The parent's start may be complete by then, and would take this rank for dead.
TEST_F(Joining, ItsAbortIsSaidToItsParentWhichIsLeft) {
  rank.network.say(*rank.network.open_last(0), Parent{5, 1, address_of(1)});
  ASSERT_TRUE(rank.network.open_last(1));
  rank.network.said.clear();
  rank.plane.bootstrap().abort(kAborted);
  const std::string text = rank.callers.wait_for_start().text();
  EXPECT_EQ(text.find("rank 17 (host "), 0u) << text;
  EXPECT_NE(text.find("): aborted here"), std::string::npos) << text;
  ASSERT_EQ(rank.network.said.size(), 2u);
  EXPECT_EQ(rank.network.said[0].message.type, FrameType::goodbye);
  EXPECT_EQ(rank.network.said[1].message.type, FrameType::start_failed);
}

// It has enlisted, and its child has come to it before its own parent was there.
TEST_F(Joining, WithoutDescriptorsForOthersItSaysSoToRank0) {
  ASSERT_TRUE(rank.network.open_last(0));
  rank.network.take<Enlist>();
  rank.plane.bootstrap().out_of_descriptors();
  rank.after(0);
  ASSERT_TRUE(rank.network.open_last(0)) << "does not say it";
  EXPECT_EQ(rank.network.take<Enlist>().at(0).second.complaint.kind(), SENNIT_OUT_OF_RESOURCES);
}

TEST_F(Joining, WhoComesToHangBelowItAfterTheStartFailedIsToldWhy) {
  FakeRank inner{1, 19};
  ASSERT_TRUE(inner.plane.bootstrap().prepare().ok());
  Channel& child = inner.network.add(Role::stranger, 17);
  inner.plane.bootstrap().fail({SENNIT_PEER_FAILED, "rank 6 died during the start"});
  inner.network.say(child, Attach{17, 19, inner.self.options.job, false, {}, {}, {}});
  EXPECT_TRUE(inner.network.take<Refuse>().empty());
  const auto told = inner.network.take<StartFailed>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, 17);
  EXPECT_EQ(told[0].second.status.text(), "rank 6 died during the start");
}

// Of those whose start was complete one asks whether it lives, maybe before it knows of the end
// itself, and again a second later.
TEST_F(Joining, WhoseStartRank0sEndCutsShortStaysToSaySo) {
  FakeRank child{5, 8};
  ASSERT_TRUE(child.plane.bootstrap().prepare().ok());
  child.after(0);
  child.network.say(*child.network.open_last(0), Parent{5, 0, address_of(0)});
  ASSERT_EQ(child.self.phase, Phase::waiting);
  child.network.lost(child.channel_of(Role::parent, 0).id, End::closed, "reset");
  EXPECT_NE(child.callers.wait_for_start().text().find("died during the start"), std::string::npos);
  child.after(1499);
  EXPECT_FALSE(child.plane.departure().over(true));
  child.network.say(child.network.add(Role::stranger, 1), Probe{1, 5});
  EXPECT_TRUE(child.network.take<ProbeAnswer>().empty());
  EXPECT_EQ(child.network.take<StartFailed>().size(), 1u);
  child.after(1);
  EXPECT_TRUE(child.plane.departure().over(true));
}

TEST_F(Joining, ARank0ThatNobodyFindsIsNamed) {
  rank.network.nobody = {0};
  rank.network.lost(rank.channel_of(Role::enlisting, 0).id, End::refused, "Connection refused");
  rank.after(rank.self.options.arrival_timeout_ms);
  const Status status = rank.callers.wait_for_start();
  EXPECT_EQ(status.kind(), SENNIT_TIMED_OUT);
  EXPECT_EQ(status.text().find("cannot reach rank 0 at 127.0.0.1:1000 within 10000 ms (Connection "
                               "refused): is it running there"),
            0u)
      << status.text();
}

// ---- which of rank 0's addresses ----

TEST(RootAddresses, AreTriedInTurnEverSlower) {
  RootAddresses roots;
  roots.set({address_of(0), address_of(1)});
  std::vector<int64_t> pauses;
  for (int i = 0; i < 6; i++) {
    EXPECT_EQ(roots.next(), address_of(i % 2));
    pauses.push_back(roots.pause_ms());
  }
  EXPECT_EQ(pauses, (std::vector<int64_t>{5, 5, 10, 10, 20, 20}));
  for (int i = 0; i < 100; i++) roots.next();
  EXPECT_EQ(roots.pause_ms(), 500);
}

TEST(RootAddresses, TheFirstThatWorksIsTaken) {
  RootAddresses roots;
  roots.set({address_of(0), address_of(1), address_of(2)});
  roots.next();
  roots.next();
  EXPECT_TRUE(roots.reached(address_of(1))) << "the first may have begun to listen meanwhile";
  EXPECT_EQ(roots.next(), address_of(0));
  EXPECT_EQ(roots.next(), address_of(1));
  EXPECT_FALSE(roots.reached(address_of(1))) << "tried once more, and that is that";
}

TEST(RootAddresses, WhereNobodyAnswersIsNotTriedAgain) {
  RootAddresses roots;
  roots.set({address_of(0), address_of(1)});
  roots.next();
  roots.was_silent();
  roots.next();
  EXPECT_FALSE(roots.reached(address_of(1)));
  EXPECT_EQ(roots.next(), address_of(1)) << "skips the silent one";
}

}  // namespace
}  // namespace sennit::control
