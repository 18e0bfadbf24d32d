// verdict.cpp: see diagnose/verdict.hpp.
#include "diagnose/verdict.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/rank_ranges.hpp"
#include "diagnose/edges.hpp"
#include "diagnose/links.hpp"
#include "diagnose/messages.hpp"
#include "diagnose/ranks.hpp"

namespace sennit {
namespace {

constexpr double kPercent = 100, kNsPerMs = 1e6;

std::string named(const std::vector<int>& ranks) {
  return name_ranks(std::set<int>(ranks.begin(), ranks.end()));
}

Verdict of_hang(const Hang& hang, Plans& plans) {
  Verdict verdict;
  verdict.kind = VerdictKind::hang;
  verdict.sentence = hang.sentence;
  verdict.evidence = hang.evidence;
  verdict.ranks = hang.behind;
  verdict.hang = hang;
  verdict.next = hang.cause == HangCause::lost_message
                     ? "look at the way between them: sennit topo --check, ip -s link"
                     : "look at that process: gdb -p PID, py-spy dump --pid PID, its host's dmesg";
  if (hang.where && hang.plan != 0) {
    const OpenStep& where = *hang.where;
    const char* const way = where.kind == EventKind::recv ? "from" : "to";
    verdict.evidence.push_back(fmt::format(
        "it hangs in step {} of chunk {}: a message (tag {}) {} rank {} over its {}", where.step,
        where.chunk, where.tag, way, where.peer, plans.tier_name(hang.comm, where.tier)));
  }
  return verdict;
}

std::set<int> gone_ranks(const JobRecording& job) {
  std::set<int> gone;
  for (const RankRecording& rank : job.ranks)
    if (rank.state == RankState::gone) gone.insert(rank.rank);
  return gone;
}

// The earliest error that a communicator ended with, and who was told what.
std::optional<Verdict> of_failures(const JobRecording& job) {
  const std::set<int> gone = gone_ranks(job);
  Verdict verdict;
  verdict.ranks.assign(gone.begin(), gone.end());
  verdict.next = "look at those processes' logs, and at their hosts' dmesg";
  const std::string ended = name_ranks(gone) + " ended without leaving the job, or were killed";
  if (job.failures.empty()) {
    // Of a job of which nobody is left, nothing says what ended it.
    if (gone.empty() || gone.size() == job.ranks.size()) return std::nullopt;
    verdict.kind = VerdictKind::gone;
    verdict.sentence = ended;
    return verdict;
  }
  verdict.kind = VerdictKind::failed;
  const auto earliest = std::min_element(
      job.failures.begin(), job.failures.end(),
      [](const auto& a, const auto& b) { return a.second.when_ns < b.second.when_ns; });
  verdict.sentence = earliest->second.text;
  std::map<std::string, std::set<int>> told;
  for (const auto& [rank, failure] : job.failures) told[failure.text].insert(rank);
  for (const auto& [text, ranks] : told)
    verdict.evidence.push_back(fmt::format("{} got: {}", name_ranks(ranks), text));
  if (!gone.empty()) verdict.evidence.push_back(ended);
  return verdict;
}

Verdict of_slow_link(const SlowLink& slow, const ObservedPlan& observed, Plans& plans) {
  const TierTree& tree = *plans.tree(observed.comm);
  Verdict verdict;
  verdict.kind = VerdictKind::slow_link;
  std::string names;
  for (const DirectedGroup& link : slow.suspects) {
    verdict.links.push_back(link_name(tree, link, slow.both_ways));
    names += (names.empty() ? "" : " or ") + verdict.links.back();
  }
  if (slow.tier >= 0) names = fmt::format("every {}'s link", tree.tiers[index(slow.tier)].name);
  verdict.factor = slow.factor;
  verdict.cost = slow.cost;
  verdict.confidence = slow.confidence;
  std::string text = slow.factor > 0
                         ? fmt::format("{}: {:.0f}% of its capacity", names, kPercent / slow.factor)
                         : names + ": slower than its like";
  const size_t calls = observed.calls.size();
  if (slow.since > 0 && slow.since < calls)
    text +=
        fmt::format(" since call {} of communicator {}", observed.calls[slow.since], observed.comm);
  const std::string call = plans.call_name(observed.comm, observed.plan);
  if (slow.cost > 0) text += fmt::format("; costs {:.0f}% of {}", kPercent * slow.cost, call);
  if (slow.suspects.size() > 1 && slow.tier < 0) text += "; the traffic does not tell them apart";
  verdict.sentence = text + fmt::format("; confidence {:.2f}", slow.confidence);
  verdict.evidence.push_back(fmt::format("by the messages of {} calls of {} on communicator {}",
                                         calls, call, observed.comm));
  verdict.next = "sennit topo --check, the ports' error counters, or drain";
  return verdict;
}

Verdict of_slow_rank(const SlowRank& slow) {
  Verdict verdict;
  verdict.ranks = slow.ranks;
  verdict.cost = slow.cost;
  const bool one = slow.ranks.size() == 1;
  if (slow.what == SlowRank::What::late) {
    verdict.kind = VerdictKind::late_rank;
    verdict.sentence = fmt::format(
        "{} {} late by {:.1f} ms a call: what {} between calls takes longer than the others' work; "
        "costs {:.0f}% of the time",
        named(slow.ranks), one ? "comes" : "come", slow.late_ns / kNsPerMs,
        one ? "it does" : "they do", kPercent * slow.cost);
    verdict.evidence.push_back(
        fmt::format("by {} calls on communicator {}; the time that it waits for others in a call "
                    "does not count",
                    slow.calls, slow.comm));
    verdict.next =
        "look at that rank's work, its input and its host: py-spy top --pid PID, nvidia-smi";
  } else {
    verdict.kind = VerdictKind::slow_steps;
    verdict.sentence = fmt::format(
        "reductions and copies of {} take {:.1f} times as long as the others'; costs {:.0f}% of "
        "the time",
        named(slow.ranks), slow.factor, kPercent * slow.cost);
    verdict.next = "look at that host: clock rates, memory, other load";
  }
  return verdict;
}

// What only costs time: the one that costs most, and beside it the other.
Verdict of_slowness(const JobRecording& job, Plans& plans, const JudgeOptions& options) {
  constexpr size_t kLatestCalls = 50;
  const std::vector<Message> messages = join_messages(job);
  const std::optional<ObservedPlan> observed = observe_edges(job, plans, messages, kLatestCalls);
  std::optional<SlowLink> link;
  if (observed)
    link = find_slow_link(*plans.tree(observed->comm), *plans.note(observed->comm, observed->plan),
                          *observed, options.least_factor);
  const std::optional<SlowRank> rank = find_slow_rank(job, options.least_cost);
  Verdict verdict;
  if (link && (!rank || link->cost >= rank->cost)) {
    verdict = of_slow_link(*link, *observed, plans);
    if (rank) verdict.evidence.push_back("besides, " + of_slow_rank(*rank).sentence);
  } else if (rank) {
    verdict = of_slow_rank(*rank);
    if (link)
      verdict.evidence.push_back("besides, " + of_slow_link(*link, *observed, plans).sentence);
  }
  if (!rank)
    verdict.ruled_out.push_back(fmt::format("no rank comes late by as much as {:.0f}% of the time",
                                            kPercent * options.least_cost));
  if (observed && !link)
    verdict.ruled_out.push_back(fmt::format(
        "no link carries less than {:.0f}% of its capacity while messages wait for it, in {} calls "
        "of {}",
        kPercent / options.least_factor, observed->calls.size(),
        plans.call_name(observed->comm, observed->plan)));
  return verdict;
}

}  // namespace

std::string_view name(VerdictKind kind) {
  constexpr std::string_view kNames[] = {"well",      "hang",      "failed",    "gone",
                                         "slow_link", "late_rank", "slow_steps"};
  return kNames[static_cast<size_t>(kind)];
}

Verdict judge(const JobRecording& job, Plans& plans, const JudgeOptions& options) {
  if (const std::optional<Hang> hang = find_hang(job, plans, options.quiet_ns, options.now_ns))
    return of_hang(*hang, plans);
  if (std::optional<Verdict> failed = of_failures(job)) return *std::move(failed);
  return of_slowness(job, plans, options);
}

}  // namespace sennit
