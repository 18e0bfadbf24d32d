// shell.hpp: runs a command line and keeps what it said.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/core.h>

namespace sennit_test {

// What came of a command line. status: -1 where it could not be started.
struct Outcome {
  int status = -1;
  std::string output;
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::stringstream stream(output);
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
  }
  // Of runs with --tag: what the rank said.
  std::string of_rank(int rank) const {
    std::string text;
    for (const std::string& line : lines())
      if (line.starts_with(fmt::format("[{} ", rank)))
        text += line.substr(line.find("] ") + 2) + "\n";
    return text;
  }
};

// Standard output, and the exit status (128 + the signal where one ended it).
inline Outcome sh_output(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return outcome;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.output.append(buffer, n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

// Both outputs together.
inline Outcome sh(const std::string& command) { return sh_output(command + " 2>&1"); }

}  // namespace sennit_test
