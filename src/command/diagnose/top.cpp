// top.cpp: `sennit top`: what a job does, second after second: calls, bytes over each tier, who
// waits for whom, and what is wrong with it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "command/command_line.hpp"
#include "command/commands.hpp"
#include "command/diagnose/search.hpp"
#include "diagnose/calls.hpp"
#include "diagnose/plans.hpp"
#include "diagnose/recorded/verdict.hpp"
#include "plan/bound.hpp"

namespace sennit {
namespace {

using diagnose::CallRecord;
using diagnose::JobRecording;
using diagnose::RankRecording;

constexpr double kNsPerS = 1e9, kNsPerMs = 1e6, kPercent = 100;
constexpr uint64_t kMostSpanNs = 2'000'000'000;

struct Options {
  diagnose::SearchArguments search;
  bool once = false;
};

// The latest part of one rank's recording, by its host's clock.
struct Span {
  uint64_t begin_ns = 0, end_ns = 0;
  double seconds() const { return static_cast<double>(end_ns - begin_ns) / kNsPerS; }
  bool holds(uint64_t ns) const { return ns > begin_ns && ns <= end_ns; }
};

// Of a rank that runs until now, where that is known by its clock, else until the last that it
// recorded; no longer than its ring.
Span span_of(const RankRecording& rank) {
  Span span;
  for (const TraceEvent& event : rank.events)
    span.end_ns = std::max(span.end_ns, event.is_step() ? event.ended_at() : event.posted_ns);
  if (rank.state == diagnose::RankState::running)
    span.end_ns = std::max(span.end_ns, rank.as_of_ns);
  const uint64_t oldest = rank.events.empty() ? span.end_ns : rank.events.front().posted_ns;
  span.begin_ns = std::max(oldest, span.end_ns - std::min(span.end_ns, kMostSpanNs));
  return span;
}

// Of the calls on a communicator, of the ranks whose recordings are here.
struct Communication {
  std::map<int, double> calls_per_s, in_calls;      // by rank; the latter is a part of the time
  std::map<uint8_t, double> bytes_per_s;            // received, by tier
  std::map<uint64_t, std::vector<double>> took_ns;  // by plan
};

// Whether it is in no call of the communicator's. That none was counted does not say so: the begin
// of a long one may be overwritten, and how old a recording is may not be known.
bool is_in_none(const RankRecording& rank, uint32_t comm) {
  const auto last =
      std::find_if(rank.events.rbegin(), rank.events.rend(), [comm](const TraceEvent& event) {
        return event.comm == comm && !event.is(kEventPointToPoint);
      });
  return last == rank.events.rend() || last->kind == EventKind::call_end;
}

std::map<uint32_t, Communication> look(const JobRecording& job) {
  std::map<uint32_t, Communication> all;
  std::map<int, Span> spans;
  for (const RankRecording& rank : job.ranks) {
    const Span span = spans[rank.rank] = span_of(rank);
    if (span.seconds() <= 0) continue;
    for (const TraceEvent& event : rank.events)
      if (event.kind == EventKind::recv && !event.is(kEventPointToPoint) &&
          span.holds(event.ended_at()))
        all[event.comm].bytes_per_s[event.tier] += event.bytes / span.seconds();
  }
  for (const CallRecord& call : find_calls(job)) {
    const Span& span = spans[call.rank];
    const bool open = call.end_ns == 0;
    if (call.point_to_point || span.seconds() <= 0 || (!open && !span.holds(call.end_ns))) continue;
    Communication& of = all[call.comm];
    const uint64_t from = std::max(call.begin_ns, span.begin_ns);
    const uint64_t until = open ? span.end_ns : call.end_ns;
    if (until > from)
      of.in_calls[call.rank] += static_cast<double>(until - from) / kNsPerS / span.seconds();
    if (open) continue;
    of.calls_per_s[call.rank] += 1 / span.seconds();
    of.took_ns[call.plan].push_back(static_cast<double>(call.end_ns - call.begin_ns));
  }
  // Who is in no call is whom the others wait for.
  for (auto& [comm, of] : all)
    for (const int member : job.members_of(comm))
      if (const RankRecording* const rank = job.find(member);
          rank && !of.in_calls.empty() && is_in_none(*rank, comm))
        of.in_calls.try_emplace(member, 0);
  return all;
}

// The plan that took most of the time: what it is, how long a call of it takes, and the part of
// that which the tree's capacities alone ask for.
std::string busiest_call(uint32_t comm, const Communication& of, diagnose::Plans& plans) {
  const std::vector<double>* most = nullptr;
  uint64_t plan = 0;
  double most_ns = -1;
  for (const auto& [hash, took] : of.took_ns) {
    double sum = 0;
    for (const double ns : took) sum += ns;
    if (sum > most_ns) most_ns = sum, most = &took, plan = hash;
  }
  if (!most) return "";
  const double mean_ns = most_ns / static_cast<double>(most->size());
  std::string text =
      fmt::format("  {}: {:.2f} ms", plans.call_name(comm, plan), mean_ns / kNsPerMs);
  const PlanNote* const note = plans.note(comm, plan);
  const TierTree* const tree = plans.tree(comm);
  if (note && tree)
    if (const Bound bound = lower_bound(note->request, *tree); bound.known && mean_ns > 0)
      text += fmt::format(", {:.0f}% of it bound",
                          kPercent * static_cast<double>(bound.time_ns) / mean_ns);
  return text + "\n";
}

// What came into the groups of each tier, and the part that this is of what their links carry. A
// message that crosses a tier comes into groups of those below as well.
std::string traffic(uint32_t comm, const Communication& of, const JobRecording& job,
                    diagnose::Plans& plans) {
  constexpr double kMega = 1e6;
  const TierTree* const tree = plans.tree(comm);
  std::string text;
  double rate = 0;
  for (auto from = of.bytes_per_s.rbegin(); from != of.bytes_per_s.rend(); ++from) {
    rate += from->second;
    text += fmt::format(", {:.1f} MB/s into {}s", rate / kMega, plans.tier_name(comm, from->first));
    uint64_t capacity = 0;
    bool known = tree != nullptr && job.missing.empty();
    if (tree)
      for (const Group& group : tree->groups) {
        if (group.tier != from->first || group.parent < 0) continue;
        capacity += group.ingress.bytes_per_s;
        known = known && group.ingress.known();
      }
    if (known && capacity != 0)
      text += fmt::format(" ({:.0f}%)", kPercent * rate / static_cast<double>(capacity));
  }
  return text;
}

// Who is in calls for longer than others waits there for who comes last. Of many ranks those that
// wait least are shown, for whom the others wait.
std::string waiting(const Communication& of) {
  constexpr size_t kMostShown = 16;
  std::vector<std::pair<double, int>> order;
  for (const auto& [rank, part] : of.in_calls) order.emplace_back(part, rank);
  std::sort(order.begin(), order.end());
  const double least = order.front().first;
  const size_t all = order.size();
  order.resize(std::min(all, kMostShown));
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = "  in calls, and waiting there for the last:";
  for (const auto& [part, rank] : order)
    text += fmt::format(" {}:{:.0f}%,{:.0f}%", rank, kPercent * part, kPercent * (part - least));
  if (all > order.size()) text += fmt::format(" and {} that wait longer", all - order.size());
  return text + "\n";
}

// What rank 0 has found. Where it does not run, or does not look, it has found nothing, and that
// tells nothing.
std::string what_rank_0_says(const JobRecording& job) {
  const RankRecording* const rank = job.find(0);
  const bool gone = rank && rank->state == diagnose::RankState::gone;
  const bool stopped = rank && rank->process == 'T';
  std::string text;
  for (const VerdictAbout about : kVerdictsAbout)
    if (const VerdictNote* const last = told_still(job, about))
      text += fmt::format("rank 0 {}: {}\n", gone || stopped ? "said" : "says", last->sentence);
  if (gone) return text + "rank 0 is gone, and says nothing any more\n";
  if (stopped) return text + "rank 0 is stopped (SIGSTOP), and says nothing meanwhile\n";
  if (!rank || !text.empty()) return text;
  return rank->watched
             ? "rank 0 says nothing is wrong\n"
             : "rank 0 says nothing: it does not watch the job (SENNIT_WATCH=0), or not for long "
               "yet\n";
}

std::string frame(const JobRecording& job) {
  diagnose::Plans plans(job);
  std::string text = fmt::format("job {:016x}: {} of {} ranks recorded here\n", job.job,
                                 job.ranks.size(), job.size);
  for (const auto& [comm, of] : look(job)) {
    double calls = 0;
    for (const auto& [rank, rate] : of.calls_per_s) calls = std::max(calls, rate);
    text += fmt::format("{}: {:.1f} calls/s", job.comm_name(comm), calls);
    text += traffic(comm, of, job, plans) + "\n" + busiest_call(comm, of, plans);
    if (!of.in_calls.empty()) text += waiting(of);
  }
  return text + what_rank_0_says(job);
}

int run(const Options& options) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  diagnose::SearchArguments search = options.search;
  for (bool first = true;; first = false) {
    const Result<JobRecording> job = diagnose::find_job("top", search, !first);
    if (!job) return first ? diagnose::kOff : 0;  // it has ended, and left nothing
    // Others may start meanwhile, and the process that it was found by may end before it.
    search.job = fmt::format("{:016x}", job->job);
    search.pid = 0;
    if (terminal && !options.once) fmt::print("\033[H\033[J");
    fmt::print("{}", frame(*job));
    std::fflush(stdout);
    const bool runs = std::any_of(job->ranks.begin(), job->ranks.end(),
                                  [](const auto& rank) { return rank.runs(); });
    if (options.once || !runs) return 0;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void add_top_command(CommandLine& line) {
  static Options kept;  // lives as long as the process, as the values of options must
  Options* const options = &kept;
  const Command top = line.command(
      "top", "what a running job does, each second: calls, bytes, who waits, and what is wrong");
  diagnose::add_search_options(top, options->search);
  top.flag("--once", options->once, "one look, and no more");
  top.action([=] { return run(*options); });
}

}  // namespace sennit
