// clock_filter_test.cpp: how far two clocks are apart is within the error that is told, however
// unlike the ways there and back are.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/clock_filter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "record/measured_clock.hpp"
#include "tests/support/seed.hpp"

namespace sennit::control {
namespace {

constexpr uint64_t kS = 1'000'000'000, kUs = 1000, kStart = 1'000'000 * kS;

TEST(ClockFilter, WaysAlikeTellTheOffsetExactly) {
  ClockFilter filter;
  EXPECT_FALSE(filter.best(kStart).has_value());
  // The other one is 5 s behind, each way takes 70 us, and it thinks for 1 ms.
  const uint64_t received = kStart + 70 * kUs - 5 * kS;
  ASSERT_TRUE(filter.add({kStart, received, received + 1000 * kUs, kStart + 1140 * kUs}));
  const ClockDistance distance = *filter.best(kStart + 1140 * kUs);
  EXPECT_EQ(distance.ahead_ns, -5 * static_cast<int64_t>(kS));
  EXPECT_GE(distance.error_ns, 70 * kUs) << "half of the way there and back";
  EXPECT_LE(distance.error_ns, 71 * kUs);
}

TEST(ClockFilter, AnEndBeforeItsBeginIsPassedOver) {
  ClockFilter filter;
  EXPECT_FALSE(filter.add({kStart, 5, 5, kStart - 1}));
  EXPECT_FALSE(filter.add({kStart, 5, 4, kStart + 9}));
  EXPECT_FALSE(filter.add({kStart, 5, 25, kStart + 9})) << "it took longer than all of it";
  EXPECT_FALSE(filter.best(kStart).has_value());
}

TEST(ClockFilter, TheShortestOfTheLatestCountsUntilItIsTooOld) {
  ClockFilter filter;
  const auto exchange = [&](uint64_t at, uint64_t took) {
    ASSERT_TRUE(filter.add({at, at + took / 2, at + took / 2, at + took}));
  };
  exchange(kStart, 20 * kUs);
  exchange(kStart + kS, 4000 * kUs);
  EXPECT_LE(filter.best(kStart + kS)->error_ns, 26 * kUs);
  // Once a shorter one is not among the latest any more, or its age costs more.
  for (uint64_t i = 0; i < ClockFilter::kKept; i++) exchange(kStart + 2 * kS, 4000 * kUs);
  EXPECT_GE(filter.best(kStart + 2 * kS)->error_ns, 1900 * kUs);
  exchange(kStart + 3 * kS, 20 * kUs);
  exchange(kStart + 103 * kS, 200 * kUs);
  EXPECT_LE(filter.best(kStart + 103 * kS + 200 * kUs)->error_ns, 101 * kUs);
}

// Delays of any distribution, congested for minutes on one way only, and clocks that drift apart by
// as much as is allowed for.
TEST(ClockFilter, TheTruthIsAlwaysWithinTheError) {
  std::mt19937_64 random(sennit_test::seed());
  for (int trial = 0; trial < 200; trial++) {
    ClockFilter filter;
    const double offset = std::uniform_real_distribution<double>(-1e14, 1e14)(random);
    const double drift = std::uniform_real_distribution<double>(-1, 1)(random) *
                         static_cast<double>(kClockDriftPpm) * 1e-6;
    // The other one's clock, by the asker's.
    const auto other = [&](double asker) { return asker + offset + drift * asker; };
    std::exponential_distribution<double> there(1e-5 * (1 + static_cast<double>(random() % 5)));
    std::exponential_distribution<double> back(1e-6);
    double now = 1e15;
    for (int i = 0; i < 50; i++) {
      const double asked = now, received = asked + 20e3 + there(random);
      const double answered = received + 5e3, arrived = answered + 20e3 + back(random);
      ASSERT_TRUE(
          filter.add({static_cast<uint64_t>(asked), static_cast<uint64_t>(other(received)),
                      static_cast<uint64_t>(other(answered)), static_cast<uint64_t>(arrived)}));
      now = arrived + static_cast<double>(random() % (2 * kS));
      const ClockDistance told = *filter.best(static_cast<uint64_t>(now));
      const double truth = other(now) - now;
      // The stamps are rounded to whole nanoseconds here.
      EXPECT_LE(std::abs(static_cast<double>(told.ahead_ns) - truth),
                static_cast<double>(told.error_ns) + 4)
          << "trial " << trial << ", exchange " << i;
    }
    EXPECT_LT(filter.best(static_cast<uint64_t>(now))->error_ns, 2'000'000u) << "of any use";
  }
}

}  // namespace
}  // namespace sennit::control
