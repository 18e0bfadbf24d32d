// soak.hpp: many random programs one after the other, spread over transports; the test and the
// command both call it.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tests/random/generator.hpp"
#include "tests/random/runner.hpp"
#include "tests/support/usable_transports.hpp"

namespace random_programs {

// Which programs, by seeds that count up from `seed`, and how they are run.
struct SoakOptions {
  uint64_t seed = 1;
  int programs = 300;
  int kills = 0;       // of further programs, in each of which a rank is killed
  double minutes = 0;  // > 0: until they are over, however many programs that is
  std::vector<std::string> transports = sennit_test::usable_transports();
  int least_ranks = 2, most_ranks = 9;
  std::set<std::string> without;
  bool shrink = true;
  bool keep_going = false;  // after the first that fails
  RunOptions run;
};

// What came of all of them.
struct SoakResult {
  int programs = 0;                             // that were run
  int kills = 0, failed = 0, ended_by_ucx = 0;  // of these
  // of what failed: program, what went wrong, the smallest one like it, how to repeat it
  std::string text;
};

// A line now and then goes to `log` (NULL: none).
SoakResult soak(const SoakOptions& options, std::FILE* log);

// The n-th program of a soak.
Program program_of(const SoakOptions& options, int n);
std::string describe_failure(Runner& runner, const SoakOptions& options, const Program& program,
                             const Outcome& outcome);

}  // namespace random_programs
