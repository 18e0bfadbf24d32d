// history_test.cpp: since when calls take longer, among noise, and that nothing is found where
// nothing changed, or calls got faster.
// ctest not-under-tsan: it has one thread
#include "diagnose/recorded/history.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"

namespace sennit::diagnose {
namespace {

// `before` calls of about 1 ms, and then some that take so many times as long. `alike`: how much of
// its noise a call shares with the one before it.
std::vector<double> times(std::mt19937_64& random, size_t before, size_t after, double longer,
                          double noise = 0.05, double alike = 0) {
  std::normal_distribution<double> deviation(0, noise);
  std::vector<double> all;
  double off = deviation(random);
  for (size_t i = 0; i < before + after; i++) {
    all.push_back(1e6 * (i < before ? 1 : longer) * std::exp(off));
    off = alike * off + std::sqrt(1 - alike * alike) * deviation(random);
  }
  return all;
}

TEST(History, FindsTheFirstCallThatTookLonger) {
  std::mt19937_64 random(sennit_test::steady_seed());
  constexpr int kTrials = 300;
  int close = 0;
  for (int trial = 0; trial < kTrials; trial++) {
    const size_t before = 4 + random() % 40, after = 4 + random() % 40;
    const size_t found = find_change(times(random, before, after, 1.5), 1.04);
    close += found == before;
  }
  EXPECT_GT(close, kTrials * 97 / 100);
}

TEST(History, FindsNothingWhereNothingChanged) {
  std::mt19937_64 random(sennit_test::steady_seed());
  constexpr int kTrials = 1000;
  int found = 0;
  for (int trial = 0; trial < kTrials; trial++)
    found += find_change(times(random, 50, 50, 1, 0.1), 1.04) != 0;
  EXPECT_LE(found, kTrials / 300);
}

// How many of 1000 clean jobs seem to have changed, of those whose noise is shared so.
int made_up(std::mt19937_64& random, size_t calls, double noise, double alike) {
  constexpr int kJobs = 1000;
  int found = 0;
  for (int job = 0; job < kJobs; job++)
    found += find_change(times(random, calls, 0, 1, noise, alike), 1.03) != 0;
  return found;
}

// What makes one call longer is often there in the next. Slow drifts are told from steps by how
// calls differ from those just before them.
TEST(History, FindsNothingWhereCallsAreLikeThoseBeforeThem) {
  std::mt19937_64 random(sennit_test::steady_seed());
  for (const double noise : {0.014, 0.05, 0.17})
    for (const size_t calls : {10, 20, 50, 100, 200}) {
      for (const double alike : {0.0, 0.3, 0.5})
        EXPECT_LE(made_up(random, calls, noise, alike), 10)
            << noise << " " << calls << " " << alike;
      EXPECT_LE(made_up(random, calls, noise, 0.8), 25) << noise << " " << calls;
    }
}

TEST(History, FindsAChangeWhereCallsAreLikeThoseBeforeThem) {
  std::mt19937_64 random(sennit_test::steady_seed());
  constexpr int kTrials = 400;
  for (const double alike : {0.0, 0.3, 0.5, 0.8})
    for (const auto& [calls, longer] :
         std::initializer_list<std::pair<size_t, double>>{{5, 1.5}, {25, 1.25}, {100, 1.2}}) {
      int found = 0;
      for (int trial = 0; trial < kTrials; trial++)
        found += find_change(times(random, calls, calls, longer, 0.05, alike), 1.03) != 0;
      EXPECT_GE(found, kTrials * 9 / 10) << calls << " " << longer << " " << alike;
    }
}

// The first calls make connections, and now and then one takes long: neither is a change, or hides
// one.
TEST(History, OutliersNeitherMakeAChangeNorHideOne) {
  std::mt19937_64 random(sennit_test::steady_seed());
  constexpr int kTrials = 1000;
  int found = 0, seen = 0;
  for (int trial = 0; trial < kTrials; trial++) {
    std::vector<double> slower = times(random, 20, 20, 1.5), same = times(random, 20, 20, 1);
    for (std::vector<double>* const all : {&slower, &same}) {
      (*all)[0] *= 30;
      (*all)[5 + random() % 30] *= 50;
    }
    const size_t change = find_change(slower, 1.04);
    found += change >= 19 && change <= 21;
    seen += find_change(same, 1.04) != 0;
  }
  EXPECT_GT(found, kTrials * 95 / 100);
  EXPECT_LE(seen, kTrials / 50);
}

TEST(History, WhatGetsFasterOrHasFewCallsDidNotGetSlower) {
  std::mt19937_64 random(sennit_test::steady_seed());
  EXPECT_EQ(find_change(times(random, 20, 20, 0.5), 1.04), 0u);
  EXPECT_EQ(find_change(times(random, 3, 4, 2), 1.04), 0u) << "too few calls";
  EXPECT_EQ(find_change({}, 1.04), 0u);
  EXPECT_EQ(find_change({1e6, 2e6}, 1.04), 0u);
}

TEST(History, IsTakenOutAndKept) {
  ObservedPlan observed;
  for (uint32_t call = 0; call < 12; call++) {
    const double slower = call < 6 ? 1 : 3;
    observed.calls.push_back(call);
    observed.time_ns.push_back(1e6 * slower + call);
    observed.edges.push_back(std::make_shared<const std::vector<EdgeTime>>(
        std::vector<EdgeTime>{{0, 1, 1000, 100 * slower, {}}, {1, 0, 1000, 70.0 + call, {}}}));
  }
  EXPECT_EQ(take_history(&observed, 1.04), 6u);
  ASSERT_EQ(observed.calls, (std::vector<uint32_t>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(observed.edges.size(), 6u);
  EXPECT_EQ(observed.time_ns.size(), 6u);
  EXPECT_NEAR(observed.well_ns, 1e6, 10);
  EXPECT_NEAR((observed.well_service_ns.at({0, 1})), 100, 1e-9);
  EXPECT_NEAR((observed.well_service_ns.at({1, 0})), 72.5, 1);
  EXPECT_EQ(take_history(&observed, 1.04), 0u) << "the rest has not changed";
}

// Of a call whose first edge was lost the others stand in other places.
TEST(History, WhatWasLostOfOneCallIsToldByTheOthers) {
  ObservedPlan observed;
  for (uint32_t call = 0; call < 12; call++) {
    observed.calls.push_back(call);
    observed.time_ns.push_back(call < 6 ? 1e6 : 3e6);
    std::vector<EdgeTime> edges = {{0, 1, 1000, 100, {}}, {0, 2, 1000, 200, {}}};
    if (call == 2) edges.erase(edges.begin());
    if (call == 3) edges.push_back({1, 0, 1000, 300, {}});
    observed.edges.push_back(std::make_shared<const std::vector<EdgeTime>>(std::move(edges)));
  }
  EXPECT_EQ(take_history(&observed, 1.04), 6u);
  ASSERT_EQ(observed.well_service_ns.size(), 3u);
  EXPECT_NEAR((observed.well_service_ns.at({0, 1})), 100, 1e-9);
  EXPECT_NEAR((observed.well_service_ns.at({0, 2})), 200, 1e-9);
  EXPECT_NEAR((observed.well_service_ns.at({1, 0})), 300, 1e-9);
}

// The first call makes connections: it says nothing of what calls take while all is well.
TEST(History, AFirstCallThatTakesLongIsNotWhatCallsTook) {
  ObservedPlan observed;
  for (uint32_t call = 0; call < 12; call++) {
    const double slower = call == 0 ? 10 : call < 6 ? 1 : 1.5;
    observed.calls.push_back(call);
    observed.time_ns.push_back(1e6 * slower + call);
    observed.edges.push_back(std::make_shared<const std::vector<EdgeTime>>(
        std::vector<EdgeTime>{{0, 1, 1000, 5000 * slower, {}}}));
  }
  EXPECT_EQ(take_history(&observed, 1.04), 6u);
  EXPECT_NEAR(observed.well_ns, 1e6, 100);
  EXPECT_NEAR((observed.well_service_ns.at({0, 1})), 5000, 1e-6);
}

}  // namespace
}  // namespace sennit::diagnose
