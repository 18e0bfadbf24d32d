// median_test.cpp: the middle of a few numbers, held against their order.
#include "base/median.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"

namespace sennit {
namespace {

TEST(Median, OfAFew) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({4, 1}), 2.5);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({7, 1, 3, 5}), 4);
  EXPECT_EQ(lower_median({3}), 3);
  EXPECT_EQ(lower_median({4, 1}), 1);
  EXPECT_EQ(lower_median({9, 1, 5}), 5);
  EXPECT_EQ(lower_median({7, 1, 3, 5}), 3);
}

TEST(Median, OfManyIsWhatStandsInTheMiddleOfTheirOrder) {
  std::mt19937_64 random(sennit_test::seed());
  for (size_t count = 1; count < 200; count++) {
    std::vector<double> values(count);
    for (double& value : values) value = static_cast<double>(random() % 50);  // some are equal
    std::vector<double> ordered = values;
    std::sort(ordered.begin(), ordered.end());
    const double lower = ordered[(count - 1) / 2], upper = ordered[count / 2];
    EXPECT_EQ(lower_median(values), lower) << count;
    EXPECT_EQ(median(values), (lower + upper) / 2) << count;
  }
}

TEST(TrimmedMean, IsOfWhatLiesBetweenTheTenthsAtBothEnds) {
  EXPECT_EQ(trimmed_mean({4}), 4);
  EXPECT_EQ(trimmed_mean({4, 1}), 2.5);
  EXPECT_EQ(trimmed_mean({90, 1, 5}), 5);
  std::mt19937_64 random(sennit_test::seed());
  for (size_t count = 3; count < 200; count++) {
    std::vector<double> values(count);
    for (double& value : values) value = static_cast<double>(random() % 50);  // some are equal
    std::vector<double> ordered = values;
    std::sort(ordered.begin(), ordered.end());
    const size_t out = std::max<size_t>(1, count / 10);
    double sum = 0;
    for (size_t i = out; i < count - out; i++) sum += ordered[i];
    EXPECT_DOUBLE_EQ(trimmed_mean(values), sum / static_cast<double>(count - 2 * out)) << count;
  }
}

}  // namespace
}  // namespace sennit
