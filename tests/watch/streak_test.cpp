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

}  // namespace
}  // namespace sennit::watch
