// shrink.hpp: the smallest program that still fails, found by leaving out ranks, events and sizes
// as long as it does.
#pragma once

#include <chrono>

#include "tests/random/runner.hpp"

namespace random_programs {

// The smallest that was found, how it failed, and how many runs were made to find it.
struct Shrunk {
  Program program;
  Outcome outcome;
  int tries = 0;
};

// Each candidate is run until it fails, at most `repeats` times: what goes wrong may hang on who is
// quicker.
Shrunk shrink(Runner& runner, const Program& failing, const Outcome& outcome, int repeats,
              std::chrono::seconds limit);

}  // namespace random_programs
