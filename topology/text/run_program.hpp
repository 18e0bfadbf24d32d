// run_program.hpp: a program's output, within a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sennit {

// How a program ended, and what it wrote.
struct ProgramOutput {
  int exit_code = 0;  // -1: killed by a signal, or past its time
  std::string out, error;
};

// Runs a program from PATH, or from /usr/sbin or /sbin, with nothing to read; at most 16 MiB of
// output. nullopt: there is no such program. Blocks until it ended or `timeout_ms` passed; it is
// killed then.
std::optional<ProgramOutput> run_program(const std::vector<std::string>& words, int timeout_ms);

}  // namespace sennit
