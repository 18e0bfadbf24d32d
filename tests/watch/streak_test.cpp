// streak_test.cpp: what most looks find is told, once, and withdrawn once it is found no more.
// ctest not-under-tsan: it has one thread
#include "watch/streak.hpp"

#include <string>

#include <gtest/gtest.h>

namespace sennit::watch {
namespace {

// Of the link out of this group. 0: nothing is found.
std::optional<LiveVerdict> slow(int group, double factor = 2) {
  if (group == 0) return std::nullopt;
  LiveVerdict verdict;
  verdict.suspects = {{group, true}};
  verdict.factor = factor;
  return verdict;
}

// What is told as a look finds each of these groups: "+2" as one is told, "-2" as it is withdrawn,
// "." where nothing is.
std::string told_of(const std::vector<int>& looks) {
  Streak streak;
  std::string all;
  for (const int group : looks) {
    std::string now;
    for (const LiveVerdict& verdict : streak.see(slow(group)))
      now += (verdict.withdrawn ? "-" : "+") + std::to_string(verdict.suspects.front().group);
    all += now.empty() ? "." : now;
  }
  return all;
}

TEST(Streak, WhatIsFoundAgainAndAgainIsToldOnce) {
  EXPECT_EQ(told_of({1, 1, 1}), "...");
  EXPECT_EQ(told_of({1, 1, 1, 1, 1, 1, 1, 1, 1}), "...+1.....");
}

TEST(Streak, AWholeTierHasToHoldForTwiceAsLong) {
  Streak streak;
  std::optional<LiveVerdict> tier = slow(1);
  tier->tier = 1;
  for (int look = 1; look < Streak::kLookLongAtTier; look++)
    EXPECT_TRUE(streak.see(tier).empty()) << "look " << look;
  EXPECT_EQ(streak.see(tier).size(), 1u);
  EXPECT_TRUE(streak.see(tier).empty()) << "it is told once";
}

TEST(Streak, ItIsToldSinceWhen) {
  Streak streak;
  std::vector<uint64_t> since;
  const auto look = [&](int group, double factor, uint64_t now_ns) {
    std::optional<LiveVerdict> found = slow(group, factor);
    if (found) found->since_ns = now_ns;
    for (const LiveVerdict& verdict : streak.see(std::move(found)))
      since.push_back(verdict.since_ns);
  };
  look(2, 2, 10);
  for (uint64_t now = 20; now < 80; now += 10) look(1, 2, now);
  EXPECT_EQ(since, std::vector<uint64_t>{20}) << "when group 1 was found first";
  for (uint64_t now = 80; now < 130; now += 10) look(1, 4, now);
  EXPECT_EQ(since, (std::vector<uint64_t>{20, 20}))
      << "it is twice as slow now, and still the same";
  for (uint64_t now = 130; now < 180; now += 10) look(0, 1, now);
  EXPECT_EQ(since, (std::vector<uint64_t>{20, 20, 20})) << "it is withdrawn";
}

TEST(Streak, ALookThatFindsNothingOrSomethingElseCostsTwo) {
  EXPECT_EQ(told_of({1, 1, 0, 1, 1, 1}), ".....+1");
  EXPECT_EQ(told_of({1, 1, 2, 1, 1, 1}), ".....+1");
  EXPECT_EQ(told_of({2, 1, 1, 1, 1}), "....+1");
  EXPECT_EQ(told_of({1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}), "............");
  EXPECT_EQ(told_of({1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}), "............");
}

TEST(Streak, WhatIsNotFoundAnyMoreIsWithdrawn) {
  EXPECT_EQ(told_of({1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0}), "...+1.......");
  EXPECT_EQ(told_of({1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0}), "...+1...-1...");
  EXPECT_EQ(told_of({1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}), "...+1...-1...+1");
}

TEST(Streak, SomethingElseInItsPlaceIsToldAsItIsWithdrawn) {
  EXPECT_EQ(told_of({1, 1, 1, 1, 2, 2, 2, 2, 2}), "...+1...-1+2.");
  EXPECT_EQ(told_of({1, 1, 1, 1, 2, 2, 1, 2, 2, 2}), "...+1......");
}

TEST(Streak, MuchSlowerIsToldAgain) {
  Streak streak;
  for (int look = 0; look < Streak::kLookLong; look++) streak.see(slow(1));
  for (int look = 0; look < Streak::kLookLong; look++)
    EXPECT_TRUE(streak.see(slow(1, 2.5)).empty());
  for (int look = 1; look < Streak::kLookLong; look++) EXPECT_TRUE(streak.see(slow(1, 4)).empty());
  const std::vector<LiveVerdict> told = streak.see(slow(1, 4));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].factor, 4);
}

// Of late ranks, those that each look finds: those that are told.
std::vector<std::vector<int>> ranks_told_of(const std::vector<std::vector<int>>& looks) {
  Streak streak;
  std::vector<std::vector<int>> told;
  for (const std::vector<int>& ranks : looks) {
    LiveVerdict late;
    late.about = VerdictAbout::late_ranks;
    late.ranks = ranks;
    late.late_ns = 1e6;
    for (const LiveVerdict& verdict : streak.see(late)) told.push_back(verdict.ranks);
  }
  return told;
}

using Told = std::vector<std::vector<int>>;

// As a job begins another rank may come late as well.
TEST(Streak, WhoIsNotLateAnyMoreIsNotBlamedForGood) {
  EXPECT_EQ(ranks_told_of({{2, 3}, {2, 3}, {2, 3}, {2, 3}, {2}, {2}, {2}}), (Told{{2, 3}}));
  EXPECT_EQ(ranks_told_of({{2, 3}, {2, 3}, {2, 3}, {2, 3}, {2}, {2}, {2}, {2}, {2}, {2}, {2}, {2}}),
            (Told{{2, 3}, {2}}));
  EXPECT_EQ(ranks_told_of({{2}, {2}, {2}, {2}, {2, 3}, {2, 3}, {2, 3}, {2, 3}}),
            (Told{{2}, {2, 3}}));
}

TEST(Streak, WhoIsLateNowAndThenIsNoNews) {
  Told looks = {{2}, {2}, {2}, {2}};
  for (int i = 0; i < 20; i++)
    looks.insert(looks.end(), {{2, 3}, {2, 3}, {2, 1}, {2, 3}, {2, 3}, {2, 3}, {2}});
  EXPECT_EQ(ranks_told_of(looks), (Told{{2}}));
  // Also where it is for a while each time.
  for (int i = 0; i < 500; i++) looks.insert(looks.end(), {{2, 3}, {2, 3}, {2, 3}, {2, 3}, {2}});
  EXPECT_EQ(ranks_told_of(looks), (Told{{2}, {2, 3}}));
}

TEST(Streak, WhoIsBlamedFromNowOnIsBlamedSinceThen) {
  Streak streak;
  std::vector<uint64_t> since;
  uint64_t now_ns = 0;
  for (const std::vector<int>& ranks : Told{{2, 3}, {3}, {3, 4}})
    for (int look = 0; look < 12; look++) {
      LiveVerdict late;
      late.about = VerdictAbout::late_ranks;
      late.ranks = ranks;
      late.since_ns = now_ns += 10;
      for (const LiveVerdict& verdict : streak.see(late)) since.push_back(verdict.since_ns);
    }
  EXPECT_EQ(since, (std::vector<uint64_t>{10, 10, 250})) << "rank 4 from the 25th look on";
}

// It is told again once it is known more exactly which link it is, and not as that is forgotten.
TEST(Streak, FewerLinksAreNews) {
  LiveVerdict one = *slow(1), two = one;
  two.suspects.push_back({5, true});
  Streak streak;
  std::vector<size_t> told;
  const auto look = [&](const LiveVerdict& found) {
    for (int i = 0; i < 6; i++)
      for (const LiveVerdict& verdict : streak.see(found)) told.push_back(verdict.suspects.size());
  };
  look(two);
  look(one);
  look(two);
  EXPECT_EQ(told, (std::vector<size_t>{2, 1}));
}

TEST(Streak, AnotherLinkInPlaceOfOneIsNews) {
  LiveVerdict before = *slow(1), after = before;
  before.since_ns = 10;
  after.since_ns = 20;
  before.suspects.push_back({5, true});
  after.suspects.push_back({7, true});
  Streak streak;
  std::vector<int> told;
  for (const LiveVerdict& found : {before, after})
    for (int i = 0; i < 6; i++)
      for (const LiveVerdict& verdict : streak.see(found)) {
        told.push_back(verdict.suspects.back().group);
        EXPECT_EQ(verdict.since_ns, 10u) << "the link that is slow is the same one";
      }
  EXPECT_EQ(told, (std::vector<int>{5, 7}));
}

}  // namespace
}  // namespace sennit::watch
