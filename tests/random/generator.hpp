// generator.hpp: a random program for a seed.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "tests/random/program.hpp"

namespace random_programs {

// What kind of program is wanted.
struct GeneratorOptions {
  int least_ranks = 2, most_ranks = 9;
  std::string transport = "shm";
  bool kill = false;              // a rank is killed in any case
  std::set<std::string> without;  // of feature_names()
};

// What a program may do beside plain calls, and can be kept from.
const std::set<std::string>& feature_names();

// The same seed and options give the same program, which make_model() finds valid.
Program generate(uint64_t seed, const GeneratorOptions& options);

}  // namespace random_programs
