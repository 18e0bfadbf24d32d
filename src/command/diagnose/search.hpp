// search.hpp: which job `sennit trace`, `sennit diagnose` and the like are about: their arguments,
// and its recordings.
#pragma once

#include <string>
#include <vector>

#include "command/command_line.hpp"
#include "diagnose/recorded/recordings.hpp"

namespace sennit::diagnose {

// What was typed.
struct SearchArguments {
  std::vector<std::string> paths;
  std::string job;
  int64_t pid = 0;
};
// The exit status where the call was off, or nothing can be read.
inline constexpr int kOff = 2;
// Says so on standard error, and returns that.
int say_off(const char* command, const Status& status);

// PATH..., --job and --pid.
void add_search_options(const Command& command, SearchArguments& arguments);

// The job's recordings, or the error on standard error. Files of folders that cannot be read are
// named there as well, and who is missing. `again`: it was found before, and nothing is said, which
// would be the same, or that it is gone.
Result<JobRecording> find_job(const char* command, const SearchArguments& arguments,
                              bool again = false);

}  // namespace sennit::diagnose
