// spread_of_recordings: how far the times of a job's calls, and of their messages, are from the
// usual ones, by the recordings of its ranks. Run by noise.py.
#include <string>
#include <vector>

#include <fmt/core.h>

#include "command/command_line.hpp"
#include "diagnose/plans.hpp"
#include "diagnose/recorded/messages.hpp"
#include "diagnose/recorded/observe.hpp"
#include "diagnose/recorded/recordings.hpp"
#include "perf/diagnosis/spread.hpp"

namespace sennit::diagnose {
namespace {

int run(const std::string& folder, bool head) {
  std::vector<std::string> passed_over;
  const Result<JobRecording> job = read_job({{folder}, std::nullopt, std::nullopt}, &passed_over);
  if (!job) {
    fmt::print(stderr, "spread_of_recordings: {}\n", job.status().text());
    return 1;
  }
  constexpr size_t kLatestCalls = 200;
  Plans plans(*job);
  const std::optional<ObservedPlan> observed =
      observe_edges(*job, plans, join_messages(*job), kLatestCalls);
  if (!observed) {
    fmt::print(stderr, "spread_of_recordings: {}: no calls that could be judged\n", folder);
    return 1;
  }
  const Spread spread = spread_of(*observed);
  if (head) fmt::print("{}", kSpreadHead);
  fmt::print("| {} | calls | {} |\n", plans.call_name(observed->comm, observed->plan),
             spread_text(spread.calls));
  fmt::print("| | edges | {} |\n", spread_text(spread.edges));
  return 0;
}

}  // namespace
}  // namespace sennit::diagnose

int main(int argc, char** argv) {
  std::string folder;
  bool head = false;
  sennit::CommandLine line("how far a job's times are from the usual ones", "spread_of_recordings");
  const sennit::Command command = line.itself();
  command.option("folder", folder, "the recordings of its ranks").required();
  command.flag("--head", head, "print the table's head first");
  command.action([&] { return sennit::diagnose::run(folder, head); });
  return line.run({argv, argv + argc});
}
