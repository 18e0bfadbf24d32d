// ranks.cpp: see diagnose/recorded/ranks.hpp.
#include "diagnose/recorded/ranks.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "base/by_chance.hpp"
#include "base/median.hpp"
#include "diagnose/calls.hpp"

namespace sennit::diagnose {
namespace {

constexpr size_t kLeastCalls = 4;
// That one of a job's ranks is accused by chance, about (base/by_chance).
constexpr double kMostLikely = 0.002;

using Calls = std::vector<const CallRecord*>;

// What one rank recorded.
struct OfRank {
  int rank = 0;
  Calls all;   // by their begin
  Calls here;  // those that ended on the communicator that is judged by, each once, by number
};

// Of calls of one number the later one counts.
void order_by_number(Calls* calls) {
  std::stable_sort(calls->begin(), calls->end(), [](const CallRecord* a, const CallRecord* b) {
    return a->seq != b->seq ? a->seq < b->seq : a->begin_ns > b->begin_ns;
  });
  calls->erase(
      std::unique(calls->begin(), calls->end(),
                  [](const CallRecord* a, const CallRecord* b) { return a->seq == b->seq; }),
      calls->end());
}

bool counts(const CallRecord& call) { return !call.point_to_point && call.end_ns != 0; }

// The communicator on which most was recorded; nothing where nothing was.
std::optional<uint32_t> busiest(const std::vector<CallRecord>& calls) {
  std::map<uint32_t, size_t> recorded;
  for (const CallRecord& call : calls)
    if (counts(call)) recorded[call.comm]++;
  if (recorded.empty()) return std::nullopt;
  return std::max_element(recorded.begin(), recorded.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// Of ranks that have ended calls on the communicator, by rank.
std::vector<OfRank> ranks_of(const std::vector<CallRecord>& calls, uint32_t comm) {
  std::map<int, OfRank> by_rank;
  for (const CallRecord& call : calls) {
    OfRank& of = by_rank[call.rank];
    of.rank = call.rank;
    of.all.push_back(&call);
    if (call.comm == comm && counts(call)) of.here.push_back(&call);
  }
  std::vector<OfRank> ranks;
  for (auto& [rank, of] : by_rank) {
    if (of.here.empty()) continue;
    std::stable_sort(of.all.begin(), of.all.end(), [](const CallRecord* a, const CallRecord* b) {
      return a->begin_ns < b->begin_ns;
    });
    order_by_number(&of.here);
    ranks.push_back(std::move(of));
  }
  return ranks;
}

// In the calls that all have recorded.
struct Gaps {
  std::vector<std::vector<double>> alone_ns;  // by rank: before the call, in none
  std::vector<double> period_ns;              // from begin to begin, of the median rank
};

// Of the time between two calls of a rank, what it was in no call for. Negative: it began one
// before the other had ended.
double alone_ns(const CallRecord& here, const CallRecord& next, const Calls& all) {
  if (next.begin_ns < here.end_ns) return -1;
  uint64_t covered = here.end_ns, in_none = 0;
  const auto first =
      std::lower_bound(all.begin(), all.end(), here.begin_ns,
                       [](const CallRecord* call, uint64_t ns) { return call->begin_ns < ns; });
  for (auto it = first; it != all.end() && (*it)->begin_ns <= next.begin_ns; ++it) {
    if ((*it)->begin_ns > covered) in_none += (*it)->begin_ns - covered;
    covered = std::max(covered, (*it)->end_ns != 0 ? (*it)->end_ns : next.begin_ns);
  }
  return static_cast<double>(in_none);
}

Gaps gaps_of(const std::vector<OfRank>& ranks) {
  Gaps gaps;
  gaps.alone_ns.resize(ranks.size());
  std::vector<size_t> at(ranks.size());  // in the calls of each rank
  for (const CallRecord* const first : ranks.front().here) {
    std::vector<double> alone, periods;
    for (size_t r = 0; r < ranks.size(); r++) {
      const Calls& calls = ranks[r].here;
      while (at[r] < calls.size() && calls[at[r]]->seq < first->seq) at[r]++;
      if (at[r] + 1 >= calls.size()) break;
      const CallRecord &here = *calls[at[r]], &next = *calls[at[r] + 1];
      if (here.seq != first->seq || next.seq != first->seq + 1) break;
      const double ns = alone_ns(here, next, ranks[r].all);
      if (ns < 0) break;
      alone.push_back(ns);
      periods.push_back(static_cast<double>(next.begin_ns - here.begin_ns));
    }
    if (alone.size() < ranks.size()) continue;
    for (size_t r = 0; r < ranks.size(); r++) gaps.alone_ns[r].push_back(alone[r]);
    gaps.period_ns.push_back(median(std::move(periods)));
  }
  return gaps;
}

// Some stretches of calls, one after the other, each told by its mean: who comes late to every
// second call, or to the first of a training step, is on time in the median call.
std::vector<double> by_stretch(const std::vector<double>& by_call) {
  constexpr size_t kStretches = 16;
  const size_t each = (by_call.size() + kStretches - 1) / kStretches;
  std::vector<double> means;
  for (size_t from = 0; from < by_call.size(); from += each) {
    const size_t count = std::min(each, by_call.size() - from);
    const auto first = by_call.begin() + static_cast<std::ptrdiff_t>(from);
    means.push_back(std::accumulate(first, first + static_cast<std::ptrdiff_t>(count), 0.0) /
                    static_cast<double>(count));
  }
  return means;
}

// By rank, and then by call or by stretch: what each has more than the median rank there. Means of
// calls' excess would not do: where ranks come late by turns, all of them would have some.
std::vector<std::vector<double>> over_median_rank(std::vector<std::vector<double>> by_rank) {
  for (size_t at = 0; at < by_rank.front().size(); at++) {
    std::vector<double> all;
    for (const std::vector<double>& of_rank : by_rank) all.push_back(of_rank[at]);
    const double usual = median(std::move(all));
    for (std::vector<double>& of_rank : by_rank) of_rank[at] -= usual;
  }
  return by_rank;
}

std::vector<double> medians(const std::vector<std::vector<double>>& by_rank) {
  std::vector<double> all;
  for (const std::vector<double>& of_rank : by_rank) all.push_back(median(of_rank));
  return all;
}

// What all but so many quarters of them reach.
double reached_by_all_but(size_t quarters, std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) * quarters / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Whether chance explains how often each is among the latest, by stretches and by the last calls.
std::vector<bool> late_by_chance(const std::vector<std::vector<double>>& stretches,
                                 std::vector<std::vector<double>> calls) {
  constexpr size_t kLatest = 128;
  for (std::vector<double>& of_rank : calls)
    if (of_rank.size() > kLatest)
      of_rank.erase(of_rank.begin(), of_rank.end() - static_cast<std::ptrdiff_t>(kLatest));
  const std::vector<double> by_stretches = likely_by_chance(stretches, kLeastCalls),
                            by_calls = likely_by_chance(calls, kLeastCalls);
  std::vector<bool> by_chance;
  for (size_t r = 0; r < calls.size(); r++)
    by_chance.push_back(static_cast<double>(calls.size()) * std::min(by_stretches[r], by_calls[r]) >
                        kMostLikely);
  return by_chance;
}

std::optional<LateRanks> find_late(uint32_t comm, const std::vector<OfRank>& ranks,
                                   double least_cost, const std::vector<int>& passed_over) {
  const Gaps gaps = gaps_of(ranks);
  if (gaps.period_ns.size() < kLeastCalls) return std::nullopt;
  const double period = median(by_stretch(gaps.period_ns));
  LateRanks slow;
  slow.comm = comm;
  slow.calls = gaps.period_ns.size();
  std::vector<std::vector<double>> means;
  for (const std::vector<double>& alone_ns : gaps.alone_ns) means.push_back(by_stretch(alone_ns));
  const std::vector<std::vector<double>> stretches = over_median_rank(std::move(means));
  const std::vector<std::vector<double>> calls = over_median_rank(gaps.alone_ns);
  const std::vector<double> in_calls = medians(calls);
  const std::vector<double> in_stretches = medians(stretches);
  const double least_ns = least_cost * period;
  const double least_in_calls = std::max(least_ns, chance_above(in_calls));
  const double least_in_stretches = std::max(least_ns, chance_above(in_stretches));
  const std::vector<bool> by_chance = late_by_chance(stretches, calls);
  for (size_t r = 0; r < ranks.size(); r++) {
    const int rank = ranks[r].rank;
    if (by_chance[r]) continue;
    // Chance has one rank above the others in half of the stretches, and hardly in three quarters.
    const bool often = reached_by_all_but(1, stretches[r]) >= least_in_stretches;
    // It may be late only of late. Of two ranks that are by turns each is in half of the calls, and
    // in no stretch.
    const bool of_late =
        in_calls[r] >= least_in_calls && reached_by_all_but(3, stretches[r]) >= least_ns;
    if (!often && !of_late) continue;
    if (std::binary_search(passed_over.begin(), passed_over.end(), rank)) continue;
    slow.ranks.push_back(rank);
    const double late_ns = std::max(in_calls[r], in_stretches[r]);
    if (late_ns < slow.late_ns) continue;
    slow.late_ns = late_ns;
    slow.latest = rank;
    slow.latest_late_ns = stretches[r];
  }
  slow.cost = period > 0 ? slow.late_ns / period : 0;
  // Where half of them are late, it is the others that are early.
  if (slow.ranks.empty() || 2 * slow.ranks.size() > ranks.size()) return std::nullopt;
  return slow;
}

}  // namespace

std::optional<LateRanks> find_late_ranks(const JobRecording& job, double least_cost,
                                         const std::vector<int>& passed_over) {
  const std::vector<CallRecord> calls = find_calls(job);
  const std::optional<uint32_t> comm = busiest(calls);
  if (!comm) return std::nullopt;
  const std::vector<OfRank> ranks = ranks_of(calls, *comm);
  if (ranks.size() < 2) return std::nullopt;
  return find_late(*comm, ranks, least_cost, passed_over);
}

}  // namespace sennit::diagnose
