// departure_test.cpp: leaving, by what was said to one rank and when: who is waited for, who is
// told, and that nobody takes it for death.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/departure.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_rank.hpp"

namespace sennit::control {
namespace {

using test::FakeRank;

constexpr int64_t kHandOverMs = 50;
constexpr int64_t kLingerMs = 1500;

TEST(Leaving, ALeafWaitsForTheCoordinatorToKnow) {
  FakeRank rank(5, 8);
  rank.start();
  rank.plane.departure().begin();
  const auto said = rank.network.take<Goodbye>();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].second.rank, 5);
  rank.after(10);
  EXPECT_EQ(rank.self.phase, Phase::leaving);
  rank.network.say(rank.parent_channel(), GoodbyeAck{5});
  rank.after(0);
  EXPECT_EQ(rank.self.phase, Phase::closing);
  EXPECT_FALSE(rank.network.is_open());
  EXPECT_TRUE(rank.plane.departure().over(true));
  EXPECT_FALSE(rank.plane.departure().over(false)) << "the last frames are to be read";
  rank.after(kClosingMs);
  EXPECT_TRUE(rank.plane.departure().over(false));
}

TEST(Leaving, WithoutAnAnswerItEndsAllTheSame) {
  FakeRank rank(5, 8);
  rank.start();
  rank.plane.departure().begin();
  rank.after(kLingerMs - 1);
  EXPECT_EQ(rank.self.phase, Phase::leaving);
  rank.after(1);
  EXPECT_EQ(rank.self.phase, Phase::closing);
}

// What it has said may wait on its way; that it has left may not be known before.
TEST(Leaving, WhatSomebodyHasSaidGoesUpBeforeItsGoodbye) {
  FakeRank rank(1, 20);
  rank.start();
  Channel& child = rank.channel_of(Role::child, 18);
  rank.network.say(child, Tell{true, {{18, 5, {}}}});
  EXPECT_TRUE(rank.network.said.empty());
  rank.network.say(child, Goodbye{18});
  ASSERT_EQ(rank.network.said.size(), 2u);
  EXPECT_EQ(rank.network.said[0].message.type, FrameType::tell);
  EXPECT_EQ(rank.network.said[1].message.type, FrameType::goodbye);
}

TEST(Leaving, AnInnerRankSendsItsChildrenElsewhere) {
  FakeRank rank(1, 20);
  rank.start();
  rank.plane.departure().begin();
  rank.network.say(rank.parent_channel(), GoodbyeAck{1});
  rank.after(kHandOverMs - 1);
  EXPECT_EQ(rank.self.phase, Phase::leaving) << "they may leave as well";
  rank.after(1);
  const auto said = rank.network.take<Leaving>();
  ASSERT_EQ(said.size(), 3u);
  EXPECT_TRUE(said[0].second.parent_leaves);
  EXPECT_EQ(said[0].second.left, std::set<int>{1});
}

TEST(Leaving, AnInnerRankKeepsItsChildrenAsLongAsTheyLeaveAsWell) {
  FakeRank rank(1, 20);
  rank.start();
  rank.plane.departure().begin();
  rank.network.say(rank.parent_channel(), GoodbyeAck{1});
  for (const int child : {17, 18}) {
    rank.after(kHandOverMs - 1);
    rank.network.say(rank.channel_of(Role::child, child), Goodbye{child});
    rank.network.say(rank.parent_channel(), GoodbyeAck{child});
    rank.network.lost(rank.channel_of(Role::child, child).id, End::closed, "closed");
  }
  rank.after(kHandOverMs - 1);
  EXPECT_EQ(rank.self.phase, Phase::leaving) << "rank 19 would have to go elsewhere";
  rank.network.say(rank.channel_of(Role::child, 19), Goodbye{19});
  rank.network.say(rank.parent_channel(), GoodbyeAck{19});
  rank.network.lost(rank.channel_of(Role::child, 19).id, End::closed, "closed");
  rank.after(0);
  EXPECT_EQ(rank.self.phase, Phase::closing);
}

// Many ranks leave at once on a busy machine: each waits long, but something always comes.
TEST(Leaving, ItTakesAsLongAsItGetsOn) {
  FakeRank rank(1, 20);
  rank.start();
  rank.plane.departure().begin();
  for (const int child : {17, 18, 19}) {
    rank.after(kLingerMs - 1);
    EXPECT_EQ(rank.self.phase, Phase::leaving);
    rank.network.say(rank.channel_of(Role::child, child), Goodbye{child});
  }
  rank.after(kLingerMs - 1);
  EXPECT_EQ(rank.self.phase, Phase::leaving);
  rank.after(1);
  EXPECT_EQ(rank.self.phase, Phase::closing);
}

TEST(Leaving, WhoLeavesJudgesNobody) {
  FakeRank rank(1, 20);
  rank.start();
  rank.plane.departure().begin();
  rank.network.lost(rank.parent_channel().id, End::closed, "closed");
  while (rank.has_channel(Role::parent, 0))
    rank.network.lost(rank.channel_of(Role::parent, 0).id, End::refused, "refused");
  for (const int child : {17, 18}) {
    rank.network.say(rank.channel_of(Role::child, child), Goodbye{child});
    rank.network.lost(rank.channel_of(Role::child, child).id, End::closed, "closed");
  }
  for (int i = 0; i < 20; i++) {
    rank.after(100);
    if (rank.has_channel(Role::probing, 0))
      rank.network.lost(rank.channel_of(Role::probing, 0).id, End::refused, "refused");
  }
  EXPECT_EQ(rank.self.phase, Phase::closing);
  EXPECT_TRUE(rank.dead.empty()) << rank.failure.text();
}

TEST(Leaving, GoodbyesArePassedUpAndAnswersDown) {
  FakeRank rank(1, 20);
  rank.start();
  rank.network.say(rank.channel_of(Role::child, 18), Goodbye{18});
  EXPECT_EQ(rank.network.take<Goodbye>().at(0).first, 0);
  rank.network.say(rank.parent_channel(), GoodbyeAck{18});
  EXPECT_EQ(rank.network.take<GoodbyeAck>().at(0).first, 18);
  rank.network.lost(rank.channel_of(Role::child, 18).id, End::closed, "closed");
  EXPECT_TRUE(rank.network.take<Suspicion>().empty()) << "it said goodbye";
}

TEST(Leaving, TheCoordinatorAcknowledgesAndMakesItKnown) {
  FakeRank rank(0, 8);
  rank.start();
  rank.network.say(rank.channel_of(Role::child, 3), Goodbye{3});
  EXPECT_EQ(rank.network.take<GoodbyeAck>().at(0).second.rank, 3);
  rank.network.lost(rank.channel_of(Role::child, 3).id, End::closed, "closed");
  rank.after(499);
  EXPECT_TRUE(rank.network.take<Leaving>().empty());
  rank.after(1);
  const auto said = rank.network.take<Leaving>();
  ASSERT_EQ(said.size(), 6u) << "all that are left";
  EXPECT_FALSE(said[0].second.parent_leaves);
  EXPECT_EQ(said[0].second.left, std::set<int>{3});
  rank.after(10'000);
  EXPECT_TRUE(rank.dead.empty());
}

TEST(Leaving, TheCoordinatorWaitsForThoseOnTheirWay) {
  FakeRank rank(0, 20);
  rank.start();
  rank.network.say(rank.channel_of(Role::child, 1), Goodbye{1});
  rank.network.lost(rank.channel_of(Role::child, 1).id, End::closed, "closed");
  rank.plane.departure().begin();
  rank.after(kHandOverMs);
  EXPECT_EQ(rank.self.phase, Phase::leaving) << "ranks 17 to 19 would not know that it has left";
  for (const int child : {17, 18, 19}) rank.attach(child, true, {1});
  rank.after(0);
  EXPECT_EQ(rank.self.phase, Phase::closing);
}

TEST(Leaving, WhoseParentLeavesLooksForAnother) {
  FakeRank rank(18, 20);
  rank.start();
  rank.network.say(rank.parent_channel(), Leaving{true, {0, 1}});
  EXPECT_EQ(rank.network.connects, std::vector<int>{2});
  EXPECT_TRUE(rank.dead.empty());
}

TEST(Leaving, AGoodbyeWithoutAnswerIsSaidToTheNextParent) {
  FakeRank rank(18, 20);
  rank.start();
  rank.plane.departure().begin();
  rank.network.take<Goodbye>();
  rank.network.say(rank.parent_channel(), Leaving{true, {0, 1}});
  Channel* const next = rank.network.open_last(2);
  ASSERT_TRUE(next);
  rank.network.say(*next, Welcome{});
  EXPECT_EQ(rank.network.take<Goodbye>().at(0).first, 2);
}

}  // namespace
}  // namespace sennit::control
