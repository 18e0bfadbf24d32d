// diagnose.cpp: `sennit diagnose`: what is wrong with a job, in one line, and then why that is
// said.
#include <cstdio>
#include <string>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/text/json.hpp"
#include "command/command_line.hpp"
#include "command/commands.hpp"
#include "command/diagnose/search.hpp"
#include "command/write.hpp"
#include "diagnose/plans.hpp"
#include "diagnose/verdict.hpp"

namespace sennit {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWell = 0, kWrong = 1, kOff = 2;
constexpr uint64_t kNsPerMs = 1'000'000;
constexpr double kNsPerS = 1e9;

struct Options {
  diagnose::SearchArguments search;
  std::string json;
  int64_t quiet_ms = 2000;
};

const char* name(HangCause cause) {
  constexpr const char* kNames[] = {"gone",         "not_called",   "other_call",
                                    "waits_itself", "stands_still", "lost_message"};
  return kNames[static_cast<size_t>(cause)];
}

const char* name(RankState state) {
  constexpr const char* kNames[] = {"running", "ended", "gone"};
  return kNames[static_cast<size_t>(state)];
}

Json hang_json(const Hang& hang, Plans& plans) {
  Json json = {{"cause", name(hang.cause)},
               {"behind", hang.behind},
               {"waiting", hang.waiting},
               {"communicator", hang.comm},
               {"number", hang.seq},
               {"call", plans.call_name(hang.comm, hang.plan)},
               {"quiet_s", static_cast<double>(hang.since_ns) / kNsPerS}};
  if (hang.where)
    json["where"] = {{"step", hang.where->step},
                     {"chunk", hang.where->chunk},
                     {"peer", hang.where->peer},
                     {"tag", hang.where->tag},
                     {"tier", plans.tier_name(hang.comm, hang.where->tier)}};
  return json;
}

Json to_json(const JobRecording& job, const Verdict& verdict, Plans& plans) {
  Json ranks = Json::array();
  for (const RankRecording& rank : job.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"host", rank.host},
                     {"pid", rank.pid},
                     {"state", name(rank.state)},
                     {"events", rank.recorded}});
  return {{"job", fmt::format("{:016x}", job.job)},
          {"verdict", name(verdict.kind)},
          {"sentence", verdict.sentence},
          {"blamed_ranks", verdict.ranks},
          {"blamed_links", verdict.links},
          {"factor", verdict.factor},
          {"cost", verdict.cost},
          {"confidence", verdict.confidence},
          {"evidence", verdict.evidence},
          {"ruled_out", verdict.ruled_out},
          {"next", verdict.next},
          {"hang", verdict.hang ? hang_json(*verdict.hang, plans) : Json()},
          {"not_looked_at", plans.why_none()},
          {"size", job.size},
          {"missing_ranks", job.missing},
          {"ranks", ranks}};
}

std::string counted(const JobRecording& job) {
  int running = 0, gone = 0;
  for (const RankRecording& rank : job.ranks) {
    running += rank.state == RankState::running;
    gone += rank.state == RankState::gone;
  }
  return fmt::format("job {:016x}: {} of {} ranks recorded, {} running, {} gone", job.job,
                     job.ranks.size(), job.size, running, gone);
}

void print(const JobRecording& job, const Verdict& verdict, const Plans& plans) {
  const bool well = verdict.kind == VerdictKind::well;
  fmt::print("{}\n", well ? "nothing is wrong that the recordings show" : verdict.sentence);
  for (const std::string& line : verdict.evidence) fmt::print("  {}\n", line);
  for (const std::string& line : verdict.ruled_out) fmt::print("  ruled out: {}\n", line);
  if (!verdict.next.empty()) fmt::print("  next: {}\n", verdict.next);
  fmt::print("{}\n", counted(job));
  if (!plans.why_none().empty()) fmt::print("not all could be looked at: {}\n", plans.why_none());
}

int run(const Options& options) {
  const Result<JobRecording> job = diagnose::find_job("diagnose", options.search);
  if (!job) return kOff;
  Plans plans(*job);
  JudgeOptions judging;
  judging.quiet_ns = static_cast<uint64_t>(options.quiet_ms) * kNsPerMs;
  for (const RankRecording& rank : job->ranks)
    if (rank.state == RankState::running) judging.now_ns = now_ns();
  const Verdict verdict = judge(*job, plans, judging);
  if (options.json != "-") print(*job, verdict, plans);
  if (!options.json.empty()) {
    const Status written =
        write_text(options.json, json_to_text(to_json(*job, verdict, plans), 2) + "\n");
    if (!written.ok()) {
      std::fprintf(stderr, "sennit diagnose: %s\n", written.text().c_str());
      return kOff;
    }
  }
  return verdict.kind == VerdictKind::well ? kWell : kWrong;
}

}  // namespace

void add_diagnose_command(CommandLine& line) {
  static Options kept;  // lives as long as the process, as the values of options must
  Options* const options = &kept;
  const Command command =
      line.command("diagnose", "what is wrong with a job that hangs, is slow, or failed");
  diagnose::add_search_options(command, options->search);
  command.option("--json", options->json, "the verdict as JSON; -: on standard output, alone")
      .value_name("FILE");
  command.option("--quiet-ms", options->quiet_ms, "a call in which nothing moves for so long hangs")
      .show_default()
      .within(1, 1'000'000'000);
  command.action([=] { return run(*options); });
}

}  // namespace sennit
