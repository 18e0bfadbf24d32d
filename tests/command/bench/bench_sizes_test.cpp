// bench_sizes_test.cpp: the sizes of a run of `sennit bench`, by a step or a factor.
//
// ctest not-under-tsan: it has one thread
// ctest links: sennit_commands
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "command/bench/bench.hpp"

namespace sennit::bench {
namespace {

std::vector<uint64_t> sizes_of(uint64_t min, uint64_t max, double factor, uint64_t step = 8) {
  Options options;
  options.min_bytes = min;
  options.max_bytes = max;
  options.factor = factor;
  options.step_bytes = step;
  return sizes(options);
}

TEST(BenchSizes, GoByAStepOrAFactor) {
  EXPECT_EQ(sizes_of(8, 32, 0), (std::vector<uint64_t>{8, 16, 24, 32}));
  EXPECT_EQ(sizes_of(8, 40, 2), (std::vector<uint64_t>{8, 16, 32}));
  EXPECT_EQ(sizes_of(64, 64, 0, 0), (std::vector<uint64_t>{64}));
  Options barrier;
  barrier.collective = Collective::barrier;
  EXPECT_EQ(sizes(barrier), (std::vector<uint64_t>{0}));
}

// 8 bytes times 1.1 are 8 again.
TEST(BenchSizes, FewBytesGrowByASmallFactorToo) {
  const std::vector<uint64_t> all = sizes_of(8, 1000, 1.1);
  EXPECT_EQ(std::vector<uint64_t>(all.begin(), all.begin() + 3), (std::vector<uint64_t>{8, 9, 10}));
  EXPECT_TRUE(std::ranges::adjacent_find(all, std::ranges::greater_equal{}) == all.end());
  EXPECT_GT(static_cast<double>(all.back()) * 1.1, 1000);
  EXPECT_EQ(sizes_of(0, 8, 2), (std::vector<uint64_t>{0, 1, 2, 4, 8}));
}

}  // namespace
}  // namespace sennit::bench
