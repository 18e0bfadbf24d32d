// failure_detector_test.cpp: who is taken for dead, by what was said to one rank and when.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/failure_detector.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_rank.hpp"

namespace sennit::control {
namespace {

using test::FakeRank;

constexpr int64_t kGatherMs = 150;  // reports of one blow are decided together

// ---- at the coordinator ----

struct Coordinator : ::testing::Test {
  FakeRank rank{0, 20};  // ranks 17 to 19 hang below rank 1
  void SetUp() override { rank.start(); }
  void ends(Role role, int peer, End end) {
    rank.network.lost(rank.channel_of(role, peer).id, end, "reset");
  }
};

TEST_F(Coordinator, ARankThatRefusesIsDead) {
  ends(Role::child, 5, End::closed);
  rank.after(0);
  EXPECT_EQ(rank.network.connects, std::vector<int>{5});
  ends(Role::probing, 5, End::refused);
  rank.after(kGatherMs - 1);
  EXPECT_TRUE(rank.dead.empty()) << "others may be reported yet";
  rank.after(1);
  EXPECT_EQ(rank.dead, std::vector<int>{5});
  EXPECT_EQ(rank.failure.text(),
            "rank 5 (host a host, pid 105) died: connection closed without goodbye");
  const auto told = rank.network.take<Decision>();
  ASSERT_EQ(told.size(), 15u) << "all children but the dead one";
  for (const auto& [to, decision] : told) {
    EXPECT_NE(to, 5);
    EXPECT_EQ(decision.dead, std::set<int>{5});
    EXPECT_EQ(decision.status.text(), rank.failure.text());
  }
  EXPECT_EQ(rank.callers.failure().kind(), SENNIT_PEER_FAILED);
}

// A child of rank 1 died when rank 0's start was complete, and rank 1's was not.
TEST_F(Coordinator, WhoseStartFailedHasLeft) {
  rank.network.say(rank.channel_of(Role::child, 1),
                   StartFailed{{SENNIT_PEER_FAILED, "rank 17 died during the start"}});
  ends(Role::child, 1, End::closed);
  rank.after(0);
  EXPECT_EQ(rank.network.connects, (std::vector<int>{17, 18, 19})) << "they are there no longer";
  ends(Role::probing, 17, End::refused);
  for (const int sibling : {18, 19}) {
    ASSERT_TRUE(rank.network.open_last(sibling));
    rank.network.say(rank.channel_of(Role::probing, sibling),
                     StartFailed{{SENNIT_PEER_FAILED, "rank 17 died during the start"}});
    EXPECT_FALSE(rank.has_channel(Role::probing, sibling));
  }
  rank.after(kGatherMs);
  EXPECT_EQ(rank.dead, std::vector<int>{17});
  rank.after(10'000);
  EXPECT_EQ(rank.dead, std::vector<int>{17});
  EXPECT_EQ(rank.network.take<Leaving>().at(0).second.left, (std::set<int>{1, 18, 19}));
}

// Rank 0 died while it told all that the start is complete: rank 3 has not heard it.
TEST(Orphans, WhoseStartFailedHaveLeft) {
  FakeRank rank{1, 4};
  rank.start();
  rank.network.nobody = {0};
  rank.network.lost(rank.parent_channel().id, End::closed, "reset");
  rank.attach(2, true);
  rank.after(30);
  ASSERT_TRUE(rank.network.open_last(3)) << "it is not asked";
  rank.network.say(rank.channel_of(Role::probing, 3),
                   StartFailed{{SENNIT_PEER_FAILED, "rank 0 died during the start"}});
  rank.after(kGatherMs);
  EXPECT_EQ(rank.dead, std::vector<int>{0});
  rank.after(10'000);
  EXPECT_EQ(rank.dead, std::vector<int>{0});
}

TEST_F(Coordinator, ARankThatAnswersLives) {
  ends(Role::child, 5, End::closed);
  rank.after(0);
  ASSERT_TRUE(rank.network.open_last(5));
  EXPECT_EQ(rank.network.take<Probe>().size(), 1u);
  rank.network.say(rank.channel_of(Role::probing, 5), ProbeAnswer{5});
  rank.after(kGatherMs);
  rank.after(10'000);
  EXPECT_TRUE(rank.dead.empty());
  EXPECT_FALSE(rank.has_channel(Role::probing, 5));
}

TEST_F(Coordinator, ABrokenConnectionBetweenTheLivingIsAFailedLink) {
  rank.network.say(rank.channel_of(Role::child, 1), Suspicion{18, kBroken, 2, "data reset"});
  rank.after(0);
  ASSERT_TRUE(rank.network.open_last(18));
  rank.network.say(rank.channel_of(Role::probing, 18), ProbeAnswer{18});
  EXPECT_EQ(rank.link_failure.kind(), SENNIT_LINK_FAILED);
  EXPECT_NE(rank.link_failure.text().find("broke while both live: data reset"), std::string::npos);
  EXPECT_EQ(rank.network.take<LinkDown>().size(), 16u);
  EXPECT_TRUE(rank.dead.empty());
}

TEST_F(Coordinator, AllWhoLostTheirConnectionToIt) {
  for (const int reporter : {2, 3, 2})
    rank.network.say(rank.channel_of(Role::child, reporter),
                     Suspicion{7, kBroken, reporter, "reset"});
  rank.after(0);
  ASSERT_TRUE(rank.network.open_last(7));
  rank.network.say(rank.channel_of(Role::probing, 7), ProbeAnswer{7});
  std::set<std::pair<int, int>> links;
  for (const auto& [to, down] : rank.network.take<LinkDown>()) links.emplace(down.a, down.b);
  EXPECT_EQ(links, (std::set<std::pair<int, int>>{{2, 7}, {3, 7}}));
}

TEST_F(Coordinator, SilenceIsDeathOnlyAfterTheTimeout) {
  rank.network.say(rank.channel_of(Role::child, 2), Suspicion{7, kBroken, 2, "reset"});
  rank.after(0);
  for (int second = 0; second < 4; second++) {
    ends(Role::probing, 7, End::unreachable);
    EXPECT_TRUE(rank.dead.empty());
    rank.after(1000);
  }
  ends(Role::probing, 7, End::unreachable);
  rank.after(kGatherMs);
  EXPECT_EQ(rank.dead, std::vector<int>{7});
  EXPECT_NE(rank.failure.text().find("no sign of life for 4000 ms (SENNIT_HEARTBEAT_TIMEOUT)"),
            std::string::npos);
}

// Its connection to its parent broke, and it has come here: only the other one is asked about.
TEST_F(Coordinator, WhoHasComeIsNotDeadForAnAnswerThatIsLate) {
  rank.network.say(rank.channel_of(Role::child, 1), Suspicion{17, kClosed, 1, "reset"});
  rank.network.say(rank.channel_of(Role::child, 2), Suspicion{17, kBroken, 2, "reset"});
  rank.after(0);
  rank.attach(17, true);
  ends(Role::probing, 17, End::unreachable);
  rank.after(kGatherMs);
  EXPECT_TRUE(rank.dead.empty()) << rank.failure.text();
  rank.after(1000);
  ASSERT_TRUE(rank.network.open_last(17));
  rank.network.say(rank.channel_of(Role::probing, 17), ProbeAnswer{17});
  EXPECT_EQ(rank.link_failure.kind(), SENNIT_LINK_FAILED);
}

TEST_F(Coordinator, TheChildrenOfADeadRankAreAskedAsWell) {
  ends(Role::child, 1, End::closed);
  rank.after(0);
  ends(Role::probing, 1, End::refused);
  rank.attach(18, true);  // these two come by themselves
  rank.attach(19, true);
  rank.after(40);
  EXPECT_EQ(rank.network.connects, (std::vector<int>{1, 17}));
  ends(Role::probing, 17, End::refused);
  rank.after(kGatherMs);
  EXPECT_EQ(rank.dead, (std::vector<int>{1, 17})) << rank.failure.text();
}

TEST_F(Coordinator, TimeInWhichNothingRanIsNotSilence) {
  rank.network.say(rank.channel_of(Role::child, 2), Suspicion{7, kBroken, 2, "reset"});
  rank.after(0);
  rank.self.now_ms += 5000;
  rank.plane.excuse(5000);
  ends(Role::probing, 7, End::unreachable);
  rank.after(kGatherMs);
  EXPECT_TRUE(rank.dead.empty());
}

// ---- elsewhere ----

struct Inner : ::testing::Test {
  FakeRank rank{1, 20};
  void SetUp() override { rank.start(); }
};

TEST_F(Inner, SuspectsGoUp) {
  rank.network.lost(rank.channel_of(Role::child, 18).id, End::closed, "reset");
  const auto told = rank.network.take<Suspicion>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, 0);
  EXPECT_EQ(told[0].second.rank, 18);
  EXPECT_EQ(told[0].second.evidence, kClosed);
  EXPECT_EQ(told[0].second.reporter, 1);
  rank.after(10);
  EXPECT_TRUE(rank.network.connects.empty()) << "the coordinator asks";
}

TEST_F(Inner, WhoeverLostAConnectionIsNews) {
  const auto say = [&](int reporter) {
    rank.network.say(rank.channel_of(Role::child, reporter),
                     Suspicion{7, kBroken, reporter, "reset"});
  };
  for (const int reporter : {18, 19, 18}) say(reporter);
  const auto told = rank.network.take<Suspicion>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].second.reporter, 18);
  EXPECT_EQ(told[1].second.reporter, 19);
}

// Its own parent has to hear of it, though this rank lives.
TEST_F(Inner, AConnectionToThisRankThatBrokeBelowGoesUp) {
  rank.network.say(rank.channel_of(Role::child, 18), Suspicion{1, kClosed, 18, "reset"});
  EXPECT_TRUE(rank.network.take<Suspicion>().empty()) << "it lives";
  rank.network.say(rank.channel_of(Role::child, 18), Suspicion{1, kBroken, 18, "reset"});
  const auto told = rank.network.take<Suspicion>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, 0);
  EXPECT_EQ(told[0].second.rank, 1);
  EXPECT_EQ(told[0].second.evidence, kBroken);
  EXPECT_EQ(told[0].second.reporter, 18);
  EXPECT_EQ(told[0].second.what, "reset");
}

TEST_F(Inner, AConnectionToThisRankThatBrokeIsAnnouncedByItAsTheSuccessor) {
  rank.network.say(rank.channel_of(Role::child, 18), Suspicion{1, kBroken, 18, "reset"});
  rank.network.nobody = {0};
  rank.network.lost(rank.channel_to_parent, End::closed, "reset");
  rank.after(0);
  const auto told = rank.network.take<LinkDown>();
  ASSERT_EQ(told.size(), 3u) << "all its children";
  EXPECT_EQ(std::pair(told[0].second.a, told[0].second.b), std::pair(18, 1));
  EXPECT_EQ(rank.network.connects, (std::vector<int>{0, 0})) << "it need not ask itself";
}

TEST_F(Inner, DecisionsAreTakenOverAndPassedOn) {
  const Status why{SENNIT_PEER_FAILED, "rank 18 died"};
  rank.network.say(rank.parent_channel(), Decision{{18}, why});
  EXPECT_EQ(rank.dead, std::vector<int>{18});
  EXPECT_FALSE(rank.has_channel(Role::child, 18));
  const auto told = rank.network.take<Decision>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].first, 17);
  EXPECT_EQ(told[1].first, 19);
  rank.network.say(rank.parent_channel(), Decision{{18}, why});
  EXPECT_TRUE(rank.network.take<Decision>().empty()) << "known already";
}

TEST_F(Inner, WhoIsAmongTheDeadLearnsItAndCloses) {
  rank.network.say(rank.parent_channel(), Decision{{1}, {SENNIT_PEER_FAILED, "rank 1 died"}});
  EXPECT_EQ(rank.failure.text(), "this rank, 1, was taken for dead by the others: rank 1 died");
  EXPECT_EQ(rank.self.phase, Phase::closing);
}

TEST_F(Inner, WhatWasNotDecidedIsToldToTheNextParent) {
  FakeRank& late = rank;
  late.network.lost(late.channel_of(Role::child, 18).id, End::closed, "reset");
  for (const int reporter : {17, 19})
    late.network.say(late.channel_of(Role::child, reporter),
                     Suspicion{7, kBroken, reporter, "reset"});
  late.network.take<Suspicion>();
  late.network.lost(late.channel_to_parent, End::closed, "reset");
  // Rank 0 is suspected, but not known to be gone: this rank goes back to it.
  EXPECT_EQ(late.network.connects, std::vector<int>{0});
  Channel* const again = late.network.open_last(0);
  ASSERT_TRUE(again);
  EXPECT_TRUE(late.network.take<Suspicion>().empty()) << "it has not said welcome";
  late.network.say(*again, Welcome{});
  const auto told = late.network.take<Suspicion>();
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[0].second.rank, 0);
  for (const size_t i : {1u, 2u}) {
    EXPECT_EQ(told[i].second.rank, 7);
    EXPECT_EQ(told[i].second.reporter, i == 1 ? 17 : 19);
  }
  EXPECT_EQ(told[3].second.rank, 18);
}

}  // namespace
}  // namespace sennit::control
