// diagnose.cpp: `sennit diagnose`: what is wrong with a job, in one line, and then why that is
// said.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "command/command_line.hpp"
#include "command/commands.hpp"
#include "command/diagnose/report.hpp"
#include "command/diagnose/search.hpp"
#include "command/write.hpp"
#include "topology/sources/ibnet/ibnet.hpp"
#include "topology/text/read_file.hpp"

namespace sennit {
namespace {

constexpr int kWell = 0, kWrong = 1;
using diagnose::kOff;
constexpr uint64_t kNsPerMs = 1'000'000;

struct Options {
  diagnose::SearchArguments search;
  std::string json, html, routes, fabric;
  int64_t quiet_ms = 2000;
};

// False, and said, where it cannot be written.
bool write(const std::string& file, const std::string& text) {
  const Status written = write_text(file, text);
  if (!written.ok()) diagnose::say_off("diagnose", written);
  return written.ok();
}

// The subnet that --routes names.
Result<IbSubnet> read_routes(const std::string& file) {
  const Result<std::string> text = read_file(file);
  if (!text) return text.status();
  Result<IbSubnet> subnet = parse_ibnetdiscover(*text, file);
  if (subnet && std::all_of(subnet->nodes.begin(), subnet->nodes.end(),
                            [](const IbNode& node) { return node.way_to.empty(); }))
    return invalid(file +
                   ": there are no forwarding tables in it: put what `dump_fts` writes "
                   "behind what `ibnetdiscover` writes");
  return subnet;
}

// What is not in the fabric that --fabric writes.
void say_what_is_left_out(const diagnose::Verdict& verdict) {
  constexpr const char* kOption = "sennit diagnose: --fabric:";
  if (verdict.slow.empty())
    std::fprintf(stderr, "%s no slow link was found: it is as it was before\n", kOption);
  for (const diagnose::FoundLink& slow : verdict.slow)
    if (slow.factor <= 0)
      std::fprintf(stderr, "%s %s: a note says so, and its capacity is as it was before\n", kOption,
                   diagnose::what_it_carries(slow).c_str());
}

int run(const Options& options) {
  std::optional<IbSubnet> subnet;
  if (!options.routes.empty()) {
    Result<IbSubnet> read = read_routes(options.routes);
    if (!read) {
      std::fprintf(stderr, "sennit diagnose: --routes: %s\n", read.status().text().c_str());
      return kOff;
    }
    subnet = *std::move(read);
  }
  const Result<diagnose::JobRecording> job = diagnose::find_job("diagnose", options.search);
  if (!job) return kOff;
  diagnose::Plans plans(*job);
  diagnose::JudgeOptions judging;
  judging.quiet_ns = static_cast<uint64_t>(options.quiet_ms) * kNsPerMs;
  if (subnet) judging.subnet = &*subnet;
  for (const diagnose::RankRecording& rank : job->ranks)
    if (rank.state == diagnose::RankState::running) judging.now_ns = realtime_ns();
  const diagnose::Verdict verdict = diagnose::judge(*job, plans, judging);
  if (options.json != "-" && options.html != "-" && options.fabric != "-")
    fmt::print("{}", diagnose::verdict_text(*job, verdict, plans));
  if (!options.json.empty() && !write(options.json, diagnose::verdict_json(*job, verdict, plans)))
    return kOff;
  if (!options.html.empty() && !write(options.html, diagnose::verdict_page(*job, verdict, plans)))
    return kOff;
  if (!options.fabric.empty()) {
    const Result<std::string> text = diagnose::fabric_text(*job, verdict, plans);
    if (!text)
      std::fprintf(stderr, "sennit diagnose: --fabric: %s\n", text.status().text().c_str());
    if (!text || !write(options.fabric, *text)) return kOff;
    say_what_is_left_out(verdict);
  }
  return verdict.kind == diagnose::VerdictKind::well ? kWell : kWrong;
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
  command.option("--html", options->html, "a page, with what is blamed marked in the fabric")
      .value_name("FILE");
  command
      .option("--routes", options->routes,
              "ibnetdiscover's text with dump_fts' behind it: they tell which cable of a slow link")
      .value_name("FILE");
  command
      .option("--fabric", options->fabric,
              "write the fabric as traffic has shown it, for SENNIT_FABRIC of the next job")
      .value_name("FILE");
  command.option("--quiet-ms", options->quiet_ms, "a call in which nothing moves for so long hangs")
      .show_default()
      .within(1, 1'000'000'000);
  command.action([=] {
    const Status status = check_outputs(
        {{"--json", options->json}, {"--html", options->html}, {"--fabric", options->fabric}});
    return status.ok() ? run(*options) : diagnose::say_off("diagnose", status);
  });
}

}  // namespace sennit
