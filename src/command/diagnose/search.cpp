// search.cpp: see command/diagnose/search.hpp.
#include "command/diagnose/search.hpp"

#include <charconv>
#include <cstdio>
#include <optional>
#include <set>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"

namespace sennit::diagnose {
namespace {

constexpr int kHexadecimal = 16;

Result<uint64_t> parse_job(const std::string& text) {
  uint64_t job = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), job, kHexadecimal);
  if (error != std::errc() || end != text.data() + text.size())
    return invalid("--job " + text + ": expected a job's number, of up to 16 hexadecimal digits");
  return job;
}

Result<JobRecording> search(const SearchArguments& arguments,
                            std::vector<std::string>* passed_over) {
  RecordingSearch search{arguments.paths, std::nullopt, std::nullopt};
  if (!arguments.job.empty()) {
    const Result<uint64_t> job = parse_job(arguments.job);
    if (!job) return job.status();
    search.job = *job;
  }
  if (arguments.pid != 0) search.pid = arguments.pid;
  return read_job(search, passed_over);
}

}  // namespace

void add_search_options(const Command& command, SearchArguments& arguments) {
  const Argument paths =
      command.option("path", arguments.paths,
                     "recordings of ranks, or folders of them (SENNIT_TRACE); default: what this "
                     "user's ranks record on this host");
  command.option("--job", arguments.job, "number of the job, where there are several");
  command.option("--pid", arguments.pid, "the job that this process is a rank of")
      .within(1, INT32_MAX)
      .excludes(paths);
}

int say_off(const char* command, const Status& status) {
  std::fprintf(stderr, "sennit %s: %s\n", command, status.text().c_str());
  return kOff;
}

Result<JobRecording> find_job(const char* command, const SearchArguments& arguments, bool again) {
  std::vector<std::string> passed_over;
  Result<JobRecording> job = search(arguments, &passed_over);
  if (again) return job;
  for (const std::string& text : passed_over)
    std::fprintf(stderr, "sennit %s: passed over: %s\n", command, text.c_str());
  if (!job) {
    say_off(command, job.status());
    return job;
  }
  if (!job->missing.empty())
    std::fprintf(stderr, "sennit %s: no recording of %s is there\n", command,
                 name_ranks(std::set<int>(job->missing.begin(), job->missing.end())).c_str());
  return job;
}

}  // namespace sennit::diagnose
