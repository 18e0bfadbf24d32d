// timeline_test.cpp: times of calls, one after the other, in one line.
//
// ctest not-under-tsan: it has one thread
#include "diagnose/recorded/timeline.hpp"

#include <gtest/gtest.h>

namespace sennit::diagnose {
namespace {

TEST(Timeline, HasABarWhereCallsBecomeSlower) {
  EXPECT_EQ(timeline({12.1e6, 12.2e6, 20.4e6}, 2), "12.1 12.2 | 20.4 ms");
  EXPECT_EQ(timeline({12.1e6, 12.2e6, 20.4e6}, 0), "12.1 12.2 20.4 ms");
  EXPECT_EQ(timeline({0.5e6}, 0), "0.500 ms");
  EXPECT_EQ(timeline({}, 0), "ms");
}

// Stretches of as many calls, but that none goes beyond the bar.
TEST(Timeline, OfManyCallsItHasTheMediansOfStretches) {
  std::vector<double> times(45, 250e6);
  times.resize(100, 500e6);
  times[3] = 9000e6;
  EXPECT_EQ(timeline(times, 45), "250 250 250 250 250 | 500 500 500 500 500 500 ms");
}

}  // namespace
}  // namespace sennit::diagnose
