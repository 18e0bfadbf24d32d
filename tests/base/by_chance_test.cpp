// by_chance_test.cpp: how likely chance makes a rank the latest, where that can be told by hand,
// and how often it does among ranks that are alike.
#include "base/by_chance.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"

namespace sennit {
namespace {

using Late = std::vector<std::vector<double>>;

// Ranks of which the last is the latest and the first the earliest, in every stretch.
Late in_order(size_t ranks, size_t stretches) {
  Late late;
  for (size_t r = 0; r < ranks; r++) late.emplace_back(stretches, static_cast<double>(r));
  return late;
}

TEST(ByChance, WhoIsTheLatestInAllStretches) {
  constexpr size_t kLeast = 4;
  const std::vector<double> of_four = likely_by_chance(in_order(8, 4), kLeast);
  EXPECT_DOUBLE_EQ(of_four[7], std::pow(8.0, -4));
  EXPECT_DOUBLE_EQ(of_four[6], std::pow(4.0, -4)) << "among the two latest";
  EXPECT_DOUBLE_EQ(of_four[0], 1) << "to be early is nothing";
  // Two times are tried since when it may be late.
  EXPECT_DOUBLE_EQ(likely_by_chance(in_order(2, 10), kLeast)[1], 2 * std::pow(2.0, -10));
  EXPECT_DOUBLE_EQ(likely_by_chance(in_order(2, 3), kLeast)[1], 1) << "too few stretches";
}

TEST(ByChance, WhoIsOnTimeNowAndThen) {
  Late late = in_order(2, 7);
  std::swap(late[0][3], late[1][3]);
  EXPECT_DOUBLE_EQ(likely_by_chance(late, 4)[1], (1 + 7) * std::pow(2.0, -7));
}

TEST(ByChance, WhoIsLateSinceSomeTimeOnly) {
  Late late = in_order(4, 32);
  for (size_t at = 0; at < 16; at++) std::swap(late[0][at], late[3][at]);
  EXPECT_DOUBLE_EQ(likely_by_chance(late, 4)[3], 4 * std::pow(4.0, -16));
}

TEST(ByChance, WhereAllAreEquallyLateNobodyIs) {
  for (const double likely : likely_by_chance(Late(3, std::vector<double>(16, 5.0)), 4))
    EXPECT_DOUBLE_EQ(likely, 1);
}

TEST(ByChance, OfManyRanksAndStretchesNumbersStayNumbers) {
  const std::vector<double> likely = likely_by_chance(in_order(1024, 128), 4);
  EXPECT_GE(likely.back(), 0);
  EXPECT_LT(likely.back(), 1e-100);
  EXPECT_DOUBLE_EQ(likely.front(), 1);
  EXPECT_TRUE(std::ranges::none_of(likely, [](double one) { return std::isnan(one); }));
}

TEST(ByChance, AmongRanksThatAreAlike) {
  constexpr int kJobs = 400;
  constexpr double kBound = 0.01, kTimes = 5;  // as the header says of 32 ranks, and chance beside
  std::mt19937_64 draw(sennit_test::steady_seed());
  std::exponential_distribution<double> work(1);
  for (const size_t ranks : {2, 8, 32}) {
    int below = 0;
    for (int job = 0; job < kJobs; job++) {
      Late late(ranks, std::vector<double>(32));
      for (std::vector<double>& of_rank : late)
        for (double& one : of_rank) one = work(draw);
      const std::vector<double> likely = likely_by_chance(late, 4);
      const double least = *std::min_element(likely.begin(), likely.end());
      below += static_cast<double>(ranks) * least <= kBound ? 1 : 0;
    }
    EXPECT_LE(below, kTimes * kBound * kJobs) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace sennit
