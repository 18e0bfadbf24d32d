// seed.hpp: the seed of a test program's random cases, printed once; TEST_SEED=N repeats a run. (A
// job refuses what begins with SENNIT_ and is no option of it.)
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace sennit_test {

inline uint64_t seed() {
  static const uint64_t value = [] {
    const char* const given = std::getenv("TEST_SEED");
    const uint64_t chosen =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    std::fflush(stdout);
    return chosen;
  }();
  return value;
}

}  // namespace sennit_test
