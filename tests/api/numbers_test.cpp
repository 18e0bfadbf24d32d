// Numbers: bf16 sums over 64 ranks are no worse than what other libraries' order of summing gives,
// all ranks hold the same bits, and the same call gives the same bits again.
#include <cmath>
#include <cstring>
#include <random>

#include "reduce/reduce.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"

using sennit::DataType;
using sennit_test::Ranks;

namespace {

constexpr int kRanks = 64;
constexpr size_t kCount = 4096;

double to_double(uint16_t bits) { return sennit::to_double(DataType::bfloat16, &bits); }
uint16_t to_bfloat16(double value) {
  uint16_t bits;
  sennit::from_double(DataType::bfloat16, value, &bits);
  return bits;
}

// Sum of squared errors against fp64, relative to the sum of squares.
double error(const std::vector<uint16_t>& sum, const std::vector<double>& exact) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < exact.size(); i++) {
    wrong += std::pow(to_double(sum[i]) - exact[i], 2);
    all += exact[i] * exact[i];
  }
  return std::sqrt(wrong / all);
}

TEST(BFloat16, ErrorIsNoLargerThanThePeersAndBitsAgree) {
  std::mt19937 random(sennit_test::seed());
  std::normal_distribution<double> normal;
  std::vector<std::vector<uint16_t>> input(kRanks, std::vector<uint16_t>(kCount));
  std::vector<double> exact(kCount, 0.0);
  for (auto& rank : input)
    for (size_t i = 0; i < kCount; i++) {
      rank[i] = to_bfloat16(normal(random));
      exact[i] += to_double(rank[i]);
    }

  // A ring (Gloo's and Open MPI's for large messages) adds one rank after the other and rounds each
  // time; the chunk's place in the vector decides where it begins. Recursive doubling (Open MPI's
  // for small ones) rounds at each of 6 levels.
  std::vector<uint16_t> ring(kCount), doubling(kCount);
  for (size_t i = 0; i < kCount; i++) {
    const size_t start = i * kRanks / kCount;
    ring[i] = input[start][i];
    for (size_t r = 1; r < kRanks; r++)
      ring[i] = to_bfloat16(to_double(ring[i]) + to_double(input[(start + r) % kRanks][i]));
    std::vector<uint16_t> level(kRanks);
    for (size_t r = 0; r < kRanks; r++) level[r] = input[r][i];
    for (size_t n = kRanks; n > 1; n /= 2)
      for (size_t r = 0; r < n / 2; r++)
        level[r] = to_bfloat16(to_double(level[2 * r]) + to_double(level[2 * r + 1]));
    doubling[i] = level[0];
  }

  Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  for (const size_t count : {kCount, size_t{64}}) {  // split and whole pieces
    std::vector<std::vector<uint16_t>> sums(kRanks, std::vector<uint16_t>(count)), again = sums;
    ranks.run([&](int rank, sennit_comm_t comm) {
      const auto r = static_cast<size_t>(rank);
      for (auto* sum : {&sums[r], &again[r]})
        ASSERT_EQ(sennit_all_reduce(input[r].data(), sum->data(), count, SENNIT_BFLOAT16,
                                    SENNIT_SUM, comm),
                  SENNIT_OK)
            << sennit_last_error();
    });
    for (size_t r = 0; r < kRanks; r++) {
      EXPECT_EQ(sums[r], sums[0]) << "rank " << r << " holds other bits";
      EXPECT_EQ(again[r], sums[0]) << "the second call gave other bits";
    }
    const std::vector<double> want(exact.begin(), exact.begin() + static_cast<long>(count));
    const double ours = error(sums[0], want), of_ring = error(ring, want),
                 of_doubling = error(doubling, want);
    std::printf("%zu elements: relative error %.5f; ring %.5f, recursive doubling %.5f\n", count,
                ours, of_ring, of_doubling);
    EXPECT_LE(ours, of_ring);
    EXPECT_LE(ours, of_doubling);
  }
}

// The same data in a longer vector, cut into other chunks, must sum to the same bits.
TEST(Reproducible, BitsDoNotDependOnSizeOrChunks) {
  const uint64_t seed = sennit_test::seed();
  constexpr int kFew = 7;
  constexpr size_t kLong = 300'000;
  std::vector<std::vector<float>> input(kFew, std::vector<float>(kLong));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (auto& rank : input)
    for (float& x : rank) x = normal(random) * std::exp(10 * normal(random));
  std::vector<std::vector<float>> results;
  setenv("SENNIT_REPRODUCIBLE", "1", 1);
  for (const char* chunk_bytes : {"0", "16K", "300K"}) {
    setenv("SENNIT_CHUNK_BYTES", chunk_bytes, 1);
    Ranks ranks(kFew);
    ASSERT_TRUE(ranks.ok());
    for (const size_t count : {size_t{50}, size_t{5'000}, kLong}) {
      std::vector<float> of_rank_2(count);
      ranks.run([&](int rank, sennit_comm_t comm) {
        std::vector<float> sum(count);
        ASSERT_EQ(sennit_all_reduce(input[static_cast<size_t>(rank)].data(), sum.data(), count,
                                    SENNIT_FLOAT32, SENNIT_SUM, comm),
                  SENNIT_OK)
            << sennit_last_error();
        if (rank == 2) of_rank_2 = sum;
      });
      results.push_back(of_rank_2);
    }
  }
  unsetenv("SENNIT_REPRODUCIBLE");
  unsetenv("SENNIT_CHUNK_BYTES");
  const std::vector<float>& longest = results.back();
  for (size_t k = 0; k < results.size(); k++)
    EXPECT_EQ(std::memcmp(results[k].data(), longest.data(), results[k].size() * sizeof(float)), 0)
        << "run " << k;
}

}  // namespace
