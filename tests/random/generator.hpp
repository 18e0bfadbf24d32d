// generator.hpp: a random program for a seed. The same seed and options give the same program.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "tests/random/program.hpp"

namespace random_programs {

struct GeneratorOptions {
  int least_ranks = 2, most_ranks = 9;
  std::string transport = "shm";
  bool kill = false;              // a rank is killed in any case
  std::set<std::string> without;  // of feature_names()
};

const std::set<std::string>& feature_names();

Program generate(uint64_t seed, const GeneratorOptions& options);

}  // namespace random_programs
