// verdict.cpp: see diagnose/recorded/verdict.hpp.
#include "diagnose/recorded/verdict.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/index.hpp"
#include "base/median.hpp"
#include "base/rank_ranges.hpp"
#include "diagnose/links.hpp"
#include "diagnose/recorded/cables.hpp"
#include "diagnose/recorded/connections.hpp"
#include "diagnose/recorded/history.hpp"
#include "diagnose/recorded/messages.hpp"
#include "diagnose/recorded/observe.hpp"
#include "diagnose/recorded/ranks.hpp"
#include "diagnose/recorded/standings.hpp"
#include "diagnose/recorded/starved.hpp"
#include "diagnose/recorded/timeline.hpp"
#include "diagnose/sentences.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kPercent = 100;
// Calls that take longer than before by less have not changed.
constexpr double kLeastChange = 1.03;

std::string what_to_do(const Verdict& verdict, const JobRecording& job) {
  const int rank = verdict.latest >= 0     ? verdict.latest
                   : verdict.ranks.empty() ? -1
                                           : verdict.ranks.front();
  const RankRecording* const found = job.find(rank);
  const std::string host = found ? found->host : "", pid = found ? std::to_string(found->pid) : "";
  switch (verdict.kind) {
    case VerdictKind::slow_link:
      return next_step(VerdictAbout::link, false, host, pid);
    case VerdictKind::late_rank:
      return next_step(VerdictAbout::late_ranks, false, host, pid);
    case VerdictKind::starved_rank:
      return next_step(VerdictAbout::starved_ranks, false, host, pid);
    case VerdictKind::hang:
      return next_step(VerdictAbout::hang,
                       verdict.hang && verdict.hang->cause == HangCause::lost_message, host, pid);
    case VerdictKind::failed:
    case VerdictKind::gone:
      return "look at those processes' logs, and at their hosts' dmesg";
    case VerdictKind::well:
      break;
  }
  return "";
}

// Where to find them: a line each.
void say_where(const std::vector<int>& ranks, const JobRecording& job, Verdict* verdict) {
  constexpr size_t kMost = 8;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); i++)
    if (const RankRecording* const rank = job.find(ranks[i]))
      verdict->evidence.push_back(
          fmt::format("rank {} is process {} on {}", rank->rank, rank->pid, rank->host));
}

Verdict of_hang(const Hang& hang) {
  Verdict verdict;
  verdict.kind = VerdictKind::hang;
  verdict.sentence = hang.sentence;
  verdict.evidence = hang.evidence;
  verdict.ranks = hang.behind;
  verdict.hang = hang;
  return verdict;
}

std::set<int> gone_ranks(const JobRecording& job) {
  std::set<int> gone;
  for (const RankRecording& rank : job.ranks)
    if (rank.state == RankState::gone) gone.insert(rank.rank);
  return gone;
}

// Whether the rank has ended calls well since: then its job went on, on other communicators.
bool went_on(const RankRecording& rank, uint64_t since_ns) {
  for (auto event = rank.events.rbegin(); event != rank.events.rend(); ++event)
    if (event->kind == EventKind::call_end && !event->is(kEventFailed))
      return event->posted_ns > since_ns;
  return false;
}

std::string how_they_ended(const std::set<int>& gone) {
  return fmt::format("{} ended without leaving the job, or {} killed", name_ranks(gone),
                     gone.size() == 1 ? "was" : "were");
}

void blame_gone(const std::set<int>& gone, Verdict* verdict) {
  verdict->kind = VerdictKind::gone;
  verdict->ranks.assign(gone.begin(), gone.end());
  verdict->sentence = how_they_ended(gone);
}

// The earliest error that a communicator ended with, and who was told what.
std::optional<Verdict> of_failures(const JobRecording& job) {
  const std::set<int> gone = gone_ranks(job);
  Verdict verdict;
  verdict.ranks.assign(gone.begin(), gone.end());
  std::map<std::string, std::set<int>> told;
  uint64_t earliest = UINT64_MAX;
  bool some_went_on = false;
  for (const auto& [number, failure] : job.failures) {
    const RankRecording& rank = *job.find(number);
    if (went_on(rank, failure.when_ns)) {
      some_went_on = true;
      continue;
    }
    told[failure.text].insert(number);
    const uint64_t when = failure.when_ns - rank.monotonic_ns + rank.realtime_ns;
    if (when >= earliest) continue;
    earliest = when;
    verdict.sentence = failure.text;
  }
  if (told.empty()) {
    // Where nobody is left what was slow says more. Of a job that went on it is known who is gone.
    if (some_went_on || gone.empty() || gone.size() == job.ranks.size()) return std::nullopt;
    blame_gone(gone, &verdict);
    return verdict;
  }
  verdict.kind = VerdictKind::failed;
  for (const auto& [text, ranks] : told)
    verdict.evidence.push_back(fmt::format("{} got: {}", name_ranks(ranks), text));
  if (!gone.empty()) verdict.evidence.push_back(how_they_ended(gone));
  return verdict;
}

// What the kernel says of the connections that cross the suspects.
KernelView kernel_view_of(const SlowLink& slow, uint32_t comm, const JobRecording& job,
                          Plans& plans) {
  const TierTree& tree = *plans.tree(comm);
  const auto suspected = [&](const DirectedGroup& link) {
    return std::any_of(slow.suspects.begin(), slow.suspects.end(), [&](const DirectedGroup& one) {
      return one.group == link.group && (slow.both_ways || one.egress == link.egress);
    });
  };
  const auto crosses = [&](const Connection& one) {
    const int from = plans.position(comm, one.from), to = plans.position(comm, one.to);
    if (from < 0 || to < 0) return false;
    const std::vector<DirectedGroup> way = way_of(tree, from, to);
    return std::any_of(way.begin(), way.end(), suspected);
  };
  const bool directed = !slow.both_ways && slow.tier < 0;  // "out of rack1", and not "rack1"
  return kernel_view(job, connections_of(job), crosses,
                     (directed ? "" : "over ") + suspects_name(tree, slow));
}

// What the suspects are made of, and by the forwarding tables which of their cables is slow.
void name_cables(const SlowLink& slow, uint32_t comm, const JobRecording& job, Plans& plans,
                 const IbSubnet* subnet, Verdict* verdict) {
  constexpr size_t kMost = 8;
  const TierTree& tree = *plans.tree(comm);
  std::set<std::string> named, hosts;
  for (const int rank : job.communicators.at(comm)) hosts.insert(job.placements[index(rank)].host);
  for (const DirectedGroup& link : slow.suspects) {
    const std::string& name = tree.groups[index(link.group)].name;
    if (slow.tier >= 0 || !plans.fabric() || !named.insert(name).second) continue;
    std::vector<std::string> cables = cables_above(*plans.fabric(), name, hosts);
    if (cables.empty()) continue;
    const std::string more =
        cables.size() > kMost ? fmt::format(", and {} more", cables.size() - kMost) : "";
    cables.resize(std::min(cables.size(), kMost));
    verdict->evidence.push_back(
        fmt::format("{} is joined by {}{}", name, fmt::join(cables, ", "), more));
  }
  if (!subnet) return;
  const std::vector<CableTime> times = cable_times(*subnet, slow, comm, job, plans);
  verdict->cables = slow_cables(times);
  for (size_t i = 0; i < std::min(times.size(), kMost); i++)
    verdict->evidence.push_back(
        fmt::format("by the forwarding tables: over {}, {} ways take {:.2f} times as long as they "
                    "should",
                    times[i].cable, times[i].ways, times[i].slower));
  if (times.empty() && slow.tier < 0)
    verdict->evidence.emplace_back("the forwarding tables do not lead from these ranks' adapters");
  if (!verdict->cables.empty())
    verdict->sentence += fmt::format("; cable: {}", fmt::join(verdict->cables, ", "));
}

std::string rough_time(uint64_t ns) {
  constexpr uint64_t kNsPerS = 1'000'000'000, kSPerMin = 60, kMinPerHour = 60, kFew = 2;
  const uint64_t s = ns / kNsPerS;
  if (s < kFew * kSPerMin) return fmt::format("{} s", s);
  if (s < kFew * kMinPerHour * kSPerMin) return fmt::format("{} min", s / kSPerMin);
  return fmt::format("{} h", s / kSPerMin / kMinPerHour);
}

// "call 41 of communicator 1 (14 min ago)": by a rank that has recorded it. Where it is not known
// how old its recording is, how long before it recorded its last event.
std::string since_call(const JobRecording& job, uint32_t comm, uint32_t seq) {
  std::string text = fmt::format("call {} of {}", seq, job.comm_name(comm));
  for (const RankRecording& rank : job.ranks)
    for (const TraceEvent& event : rank.events) {
      const bool begin = event.kind == EventKind::call_begin,
                 end = event.kind == EventKind::call_end;
      if (!(begin || end) || event.comm != comm || event.seq != seq || event.is(kEventPointToPoint))
        continue;
      // Of a short call there is the end alone.
      const uint64_t began_ns = begin ? event.posted_ns : event.posted_ns - event.after(event.last);
      const bool dated = rank.as_of_ns != 0 && !rank.copied;
      const uint64_t end_ns = rank.as_of_ns != 0 ? rank.as_of_ns : rank.events.back().posted_ns;
      const uint64_t ago_ns = end_ns - std::min(end_ns, began_ns);
      return text + fmt::format(" ({} {})", rough_time(ago_ns), dated ? "ago" : "before the end");
    }
  return text;
}

// `before`: so many calls are recorded in which it was not slow yet, beside the observed ones;
// `times_ns`: what all of these took.
Verdict of_slow_link(const SlowLink& slow, const ObservedPlan& observed, size_t before,
                     const std::vector<double>& times_ns, const JobRecording& job, Plans& plans,
                     const JudgeOptions& options) {
  const TierTree& tree = *plans.tree(observed.comm);
  Verdict verdict;
  verdict.kind = VerdictKind::slow_link;
  verdict.links = link_names(tree, slow);
  verdict.factor = slow.factor;
  verdict.cost = slow.cost;
  verdict.confidence = slow.confidence;
  verdict.slow = {{verdict.links, slow.factor, slow.tier >= 0, observed.comm}};
  const size_t calls = observed.calls.size();
  const size_t first = before > 0 ? 0 : slow.since;
  const std::string since = (first > 0 || before > 0) && first < calls
                                ? since_call(job, observed.comm, observed.calls[first])
                                : "";
  const std::string call = plans.call_name(observed.comm, observed.plan);
  verdict.sentence = slow_link_sentence(tree, slow, since, call);
  verdict.evidence.push_back(fmt::format("by the messages of {} calls of {} on {}", calls, call,
                                         job.comm_name(observed.comm)));
  if (before > 0)
    verdict.evidence.push_back(
        fmt::format("against the {} calls before them, which took {:.0f}% of their time", before,
                    kPercent * observed.well_ns / median(observed.time_ns)));
  verdict.evidence.push_back("they took, the oldest first: " +
                             timeline(times_ns, before > 0 ? before : slow.since));
  name_cables(slow, observed.comm, job, plans, options.subnet, &verdict);
  KernelView kernel = kernel_view_of(slow, observed.comm, job, plans);
  verdict.evidence.insert(verdict.evidence.end(), kernel.evidence.begin(), kernel.evidence.end());
  verdict.ruled_out = std::move(kernel.ruled_out);
  return verdict;
}

Verdict of_late_ranks(const LateRanks& late, const JobRecording& job) {
  Verdict verdict;
  verdict.kind = VerdictKind::late_rank;
  verdict.ranks = late.ranks;
  verdict.latest = late.latest;
  verdict.cost = late.cost;
  verdict.sentence = late_ranks_sentence(late.ranks, late.late_ns, late.cost, late.latest,
                                         job.find(late.latest)->cores_between);
  verdict.evidence.push_back(fmt::format(
      "by {} calls on {}; time in which a rank waits for others in a call does not count",
      late.calls, job.comm_name(late.comm)));
  verdict.evidence.push_back(
      fmt::format("rank {} was late by, on average, the oldest calls first: {}", late.latest,
                  timeline(late.latest_late_ns, 0)));
  say_where(late.ranks, job, &verdict);
  return verdict;
}

// Which link is slow. What is not known to be well rules nothing out.
std::optional<Verdict> of_links(const JobRecording& job, Plans& plans, const JudgeOptions& options,
                                std::vector<std::string>* ruled_out) {
  constexpr size_t kLatestCalls = 200;
  std::optional<ObservedPlan> observed;
  if (options.observed)
    observed = *options.observed;
  else
    observed = observe_edges(job, plans, join_messages(job), kLatestCalls);
  if (!observed) return std::nullopt;
  // What a change does not explain may have been so from the first call on.
  ObservedPlan changed = *observed;
  const size_t before = take_history(&changed, kLeastChange);
  LinkFinding since;
  if (before > 0) since = find_slow_link(plans, changed, options.least_factor, kOfRecordings);
  if (since.slow)
    return of_slow_link(*since.slow, changed, before, observed->time_ns, job, plans, options);
  const LinkFinding all = find_slow_link(plans, *observed, options.least_factor, kOfRecordings);
  if (all.slow)
    return of_slow_link(*all.slow, *observed, 0, observed->time_ns, job, plans, options);
  if (all.well && (before == 0 || since.well))
    ruled_out->push_back(fmt::format(
        "no link that these use carries less than {:.0f}% of its capacity while messages wait for "
        "it: {} calls of {}",
        kPercent / options.least_factor, observed->calls.size(),
        plans.call_name(observed->comm, observed->plan)));
  return std::nullopt;
}

VerdictKind kind_of(VerdictAbout about) {
  switch (about) {
    case VerdictAbout::link:
      return VerdictKind::slow_link;
    case VerdictAbout::late_ranks:
      return VerdictKind::late_rank;
    case VerdictAbout::hang:
      return VerdictKind::hang;
    case VerdictAbout::starved_ranks:
      return VerdictKind::starved_rank;
  }
  return VerdictKind::well;
}

// When the rank noted that telling of it, by its clock; 0: it has not.
uint64_t noted_at_ns(const RankRecording& rank, const VerdictNote& hang) {
  for (const Note& note : rank.notes)
    if (const auto* const its = std::get_if<VerdictNote>(&note);
        its && its->about == hang.about && !its->withdrawn && its->when_ns == hang.when_ns &&
        its->sentence == hang.sentence)
      return its->noted_ns;
  return 0;
}

// What `rank`'s clock is ahead of the other's; nothing: that is not known.
std::optional<int64_t> ahead_of(const RankRecording& rank, const RankRecording& other) {
  if (rank.host == other.host) return 0;
  if (!rank.clock.known() || !other.clock.known() || rank.clock.root != other.clock.root)
    return std::nullopt;
  return rank.clock.ahead_ns - other.clock.ahead_ns;
}

// When the hang was told, by the rank's clock. Nobody notes it before, but a rank that was stopped
// long after: so the first note of all counts. Real time, by which it is told where there is none,
// is set anew now and then, and differs from host to host.
uint64_t told_at_ns(const JobRecording& job, const RankRecording& rank, const VerdictNote& hang) {
  uint64_t first_ns = UINT64_MAX;
  for (const RankRecording& other : job.ranks) {
    const uint64_t noted_ns = noted_at_ns(other, hang);
    const std::optional<int64_t> ahead_ns = ahead_of(rank, other);
    if (noted_ns != 0 && ahead_ns)
      first_ns = std::min(first_ns, noted_ns + static_cast<uint64_t>(*ahead_ns));
  }
  if (first_ns != UINT64_MAX) return first_ns;
  return hang.when_ns - rank.realtime_ns + rank.monotonic_ns;
}

// A job may have ended, or gone on, before a hang was withdrawn.
bool is_over(const JobRecording& job, const VerdictNote& hang) {
  bool all_ended = true;
  for (const RankRecording& rank : job.ranks) {
    all_ended = all_ended && rank.state == RankState::ended;
    const bool blamed =
        std::find(hang.ranks.begin(), hang.ranks.end(), rank.rank) != hang.ranks.end();
    if (blamed && went_on(rank, told_at_ns(job, rank, hang))) return true;
  }
  return all_ended;
}

// ", 14 min ago": of a job that runs.
std::string when(const VerdictNote& note, std::optional<uint64_t> now_ns) {
  if (!now_ns) return "";
  return fmt::format(", {} ago", rough_time(*now_ns - std::min(*now_ns, note.when_ns)));
}

// By the calls of all hosts, also of those whose recordings are not here.
void add_told(const JobRecording& job, std::optional<uint64_t> now_ns, Verdict* verdict) {
  for (const VerdictAbout about : kVerdictsAbout) {
    const VerdictNote* const note = told_still(job, about);
    if (!note) continue;
    if (about == VerdictAbout::link && verdict->slow.empty())
      verdict->slow = {{note->links, note->factor, note->tier >= 0, std::nullopt}};
    if (verdict->kind == kind_of(about) && verdict->hang && verdict->ranks == note->ranks) continue;
    if (verdict->kind != VerdictKind::well) {
      verdict->evidence.push_back("rank 0 said while the job ran" + when(*note, now_ns) + ": " +
                                  note->sentence);
      continue;
    }
    verdict->kind = kind_of(about);
    verdict->sentence = note->sentence;
    verdict->links = note->links;
    verdict->ranks = note->ranks;
    verdict->factor = note->factor;
    verdict->cost = note->cost;
    verdict->confidence = note->confidence;
    verdict->evidence.push_back(
        "rank 0 said so while the job ran" + when(*note, now_ns) + ", by what all ranks told it" +
        (about == VerdictAbout::hang ? "" : "; the recordings that are here do not show it"));
    say_where(note->ranks, job, verdict);
    verdict->ruled_out.clear();
  }
}

Verdict of_starved_ranks(const StarvedRanks& starved, const JobRecording& job) {
  Verdict verdict;
  verdict.kind = VerdictKind::starved_rank;
  verdict.ranks = starved.ranks;
  verdict.cost = starved.part;
  verdict.sentence = starved_ranks_sentence(starved.ranks, starved.part);
  verdict.evidence.emplace_back(
      "a thread of each rank that sleeps for 10 ms, again and again, noted when it woke late");
  say_where(starved.ranks, job, &verdict);
  return verdict;
}

// What only costs time, the one that costs most first.
std::vector<Verdict> slow_things(const JobRecording& job, Plans& plans, const JudgeOptions& options,
                                 std::vector<std::string>* ruled_out) {
  std::vector<Verdict> found;
  const std::optional<StarvedRanks> starved = find_starved_ranks(job, options.least_starved);
  if (starved) found.push_back(of_starved_ranks(*starved, job));
  const std::optional<LateRanks> late =
      find_late_ranks(job, options.least_cost, starved ? starved->ranks : std::vector<int>());
  if (late) found.push_back(of_late_ranks(*late, job));
  const bool watched = std::all_of(job.ranks.begin(), job.ranks.end(),
                                   [](const RankRecording& rank) { return rank.watched; });
  if (!starved && watched)
    ruled_out->push_back(
        fmt::format("no rank's process goes without a core for {:.0f}% of the time",
                    kPercent * options.least_starved));
  if (!late)
    ruled_out->push_back(fmt::format("no rank comes late by as much as {:.0f}% of the time",
                                     kPercent * options.least_cost));
  // What waits for a rank that does not run waits for no link.
  std::optional<Verdict> link;
  if (!starved) link = of_links(job, plans, options, ruled_out);
  if (link) found.insert(found.begin(), *std::move(link));
  std::stable_sort(found.begin(), found.end(),
                   [](const Verdict& a, const Verdict& b) { return a.cost > b.cost; });
  return found;
}

Verdict of_slowness(const JobRecording& job, Plans& plans, const JudgeOptions& options) {
  std::vector<std::string> ruled_out;
  const std::vector<Verdict> found = slow_things(job, plans, options, &ruled_out);
  Verdict verdict = found.empty() ? Verdict() : found.front();
  for (size_t i = 1; i < found.size(); i++) {
    verdict.evidence.push_back("besides, " + found[i].sentence);
    verdict.slow.insert(verdict.slow.end(), found[i].slow.begin(), found[i].slow.end());
  }
  verdict.ruled_out.insert(verdict.ruled_out.begin(), ruled_out.begin(), ruled_out.end());
  add_told(job, options.now_ns, &verdict);
  // A job that ended well has left.
  const std::set<int> gone = gone_ranks(job);
  if (verdict.kind == VerdictKind::well && !gone.empty() && gone.size() == job.ranks.size())
    blame_gone(gone, &verdict);
  const bool link = std::any_of(found.begin(), found.end(), [](const Verdict& one) {
    return one.kind == VerdictKind::slow_link;
  });
  if (!link) {
    const KernelView kernel = kernel_view_of_all(job, connections_of(job));
    verdict.evidence.insert(verdict.evidence.end(), kernel.evidence.begin(), kernel.evidence.end());
    verdict.ruled_out.insert(verdict.ruled_out.end(), kernel.ruled_out.begin(),
                             kernel.ruled_out.end());
  }
  return verdict;
}

Verdict what_is_wrong(const JobRecording& job, Plans& plans, const JudgeOptions& options) {
  const Patience patience{options.quiet_ns, options.quiet_ns};
  Standings standings = standings_of(job, plans);
  Verdict verdict;
  if (const std::optional<Hang> hang =
          find_hang(job, plans, std::move(standings.by_rank), patience))
    verdict = of_hang(*hang);
  else if (std::optional<Verdict> failed = of_failures(job))
    verdict = *std::move(failed);
  // Copies are made once a hang was told, when it has stood for less than `quiet_ns`.
  if (verdict.kind == VerdictKind::well && !told_still(job, VerdictAbout::hang))
    verdict = of_slowness(job, plans, options);
  else
    add_told(job, options.now_ns, &verdict);
  if (!standings.undated.empty())
    verdict.evidence.push_back(
        fmt::format("how old the recordings of {} are is not known, as they are of another host or "
                    "a container: what was recorded last is now",
                    name_ranks(standings.undated)));
  return verdict;
}

}  // namespace

const VerdictNote* told_still(const JobRecording& job, VerdictAbout about) {
  const VerdictNote* const note = job.last_told(about);
  return note && about == VerdictAbout::hang && is_over(job, *note) ? nullptr : note;
}

std::string_view name(VerdictKind kind) {
  constexpr std::string_view kNames[] = {"well",      "hang",      "failed",      "gone",
                                         "slow_link", "late_rank", "starved_rank"};
  return kNames[static_cast<size_t>(kind)];
}

std::string headline(const Verdict& verdict) {
  return verdict.kind == VerdictKind::well ? "nothing is wrong that the recordings show"
                                           : verdict.sentence;
}

std::vector<std::string> reasons(const Verdict& verdict) {
  std::vector<std::string> lines = verdict.evidence;
  for (const std::string& line : verdict.ruled_out) lines.push_back("ruled out: " + line);
  return lines;
}

Verdict judge(const JobRecording& job, Plans& plans, const JudgeOptions& options) {
  Verdict verdict = what_is_wrong(job, plans, options);
  verdict.next = what_to_do(verdict, job);
  return verdict;
}

}  // namespace sennit::diagnose
