// seed.hpp: the seed of a test program's random cases, printed once; SENNIT_SEED=N repeats a run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace sennit_test {

inline uint64_t seed() {
  static const uint64_t value = [] {
    const char* const given = std::getenv("SENNIT_SEED");
    const uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("SENNIT_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    std::fflush(stdout);
    return chosen;
  }();
  return value;
}

}  // namespace sennit_test
