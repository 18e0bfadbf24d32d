// trace.cpp: `sennit trace`: what the ranks of a job did lately, for Perfetto.
#include <fmt/core.h>

#include "command/command_line.hpp"
#include "command/commands.hpp"
#include "command/diagnose/search.hpp"
#include "command/write.hpp"
#include "diagnose/plans.hpp"
#include "diagnose/recorded/chrome_trace.hpp"

namespace sennit {
namespace {

struct Options {
  diagnose::SearchArguments search;
  std::string output = "-";
};

int run(const Options& options) {
  const Result<diagnose::JobRecording> job = diagnose::find_job("trace", options.search);
  if (!job) return diagnose::kOff;
  diagnose::Plans plans(*job);
  const Status written = write_text(options.output, diagnose::chrome_trace(*job, plans));
  if (!written.ok()) return diagnose::say_off("trace", written);
  size_t events = 0;
  for (const diagnose::RankRecording& rank : job->ranks) events += rank.events.size();
  if (options.output != "-")
    fmt::print("job {:016x}: {} events of {} of {} ranks in {}; open it in ui.perfetto.dev\n",
               job->job, events, job->ranks.size(), job->size, options.output);
  return 0;
}

}  // namespace

void add_trace_command(CommandLine& line) {
  static Options kept;  // lives as long as the process, as the values of options must
  Options* const options = &kept;
  const Command trace = line.command(
      "trace",
      "what a job's ranks did lately, as Chrome's JSON: a row per rank, arrows for messages");
  diagnose::add_search_options(trace, options->search);
  trace.option("-o,--output", options->output, "file to write; -: standard output")
      .show_default()
      .value_name("FILE");
  trace.action([=] { return run(*options); });
}

}  // namespace sennit
