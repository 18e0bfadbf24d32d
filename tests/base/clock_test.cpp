// clock_test.cpp: the fast clock is the kernel's clock, also where processes lose their cores.
#include "base/clock.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace sennit {
namespace {

constexpr uint64_t kAllowedNs = 2'000;

// How far it was from between two readings of the kernel's clock at most, in `reads` of them.
uint64_t worst_error(int reads) {
  FastClock clock;
  uint64_t worst = 0;
  for (int i = 0; i < reads; i++) {
    const uint64_t before = now_ns(), fast = clock.now(), after = now_ns();
    worst = std::max({worst, fast < before ? before - fast : 0, fast > after ? fast - after : 0});
  }
  return worst;
}

TEST(FastClock, IsTheKernelsClock) { EXPECT_LE(worst_error(2'000'000), kAllowedNs); }

// New clocks learn the counter's rate anew: each here is young.
TEST(FastClock, IsSoFromTheStart) {
  for (int i = 0; i < 500; i++) ASSERT_LE(worst_error(2'000), kAllowedNs) << "clock " << i;
}

TEST(FastClock, IsSoWhereThreadsLoseTheirCores) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 3 * std::max(1u, std::thread::hardware_concurrency()); i++)
    others.emplace_back([&stop] {
      while (!stop) {
      }
    });
  uint64_t worst = 0;
  for (int i = 0; i < 1'000; i++) worst = std::max(worst, worst_error(2'000));
  stop = true;
  for (std::thread& other : others) other.join();
  EXPECT_LE(worst, kAllowedNs);
}

}  // namespace
}  // namespace sennit
