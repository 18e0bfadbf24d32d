// seed.hpp: the seed of a test program's random cases, printed once; TEST_SEED=N repeats a run. (A
// job refuses what begins with SENNIT_ and is no option of it.)
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace sennit_test {

// Another in every run that is given none.
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

// For tests that count how often something comes out by chance, and so would fail by chance now and
// then: it is the same in every run that is given none.
inline uint64_t steady_seed() { return std::getenv("TEST_SEED") != nullptr ? seed() : 1; }

}  // namespace sennit_test
