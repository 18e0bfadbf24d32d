// ranks.cpp: see diagnose/recorded/ranks.hpp.
#include "diagnose/recorded/ranks.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/median.hpp"
#include "diagnose/calls.hpp"

namespace sennit::diagnose {
namespace {

constexpr size_t kLeastCalls = 4;

// One rank's calls on a communicator, by number.
using CallsOfRank = std::map<uint32_t, const CallRecord*>;
using CallsByRank = std::map<int, CallsOfRank>;

// Those of the communicator on which most was recorded.
std::pair<uint32_t, CallsByRank> busiest(const std::vector<CallRecord>& calls) {
  std::map<uint32_t, CallsByRank> by_comm;
  std::map<uint32_t, size_t> counts;
  for (const CallRecord& call : calls) {
    if (call.point_to_point || call.end_ns == 0) continue;
    by_comm[call.comm][call.rank][call.seq] = &call;
    counts[call.comm]++;
  }
  if (counts.empty()) return {};
  const uint32_t comm =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  return {comm, std::move(by_comm[comm])};
}

// By rank, in the calls that all have recorded.
struct Gaps {
  std::map<int, std::vector<double>> excess_ns;  // before the call, over the median rank's
  std::vector<double> period_ns;                 // from begin to begin, of the median rank
};

// All calls of each rank, by their begin.
using AllCalls = std::map<int, std::vector<const CallRecord*>>;

AllCalls calls_by_rank(const std::vector<CallRecord>& calls) {
  AllCalls all;
  for (const CallRecord& call : calls) all[call.rank].push_back(&call);
  for (auto& [rank, of_rank] : all)
    std::stable_sort(of_rank.begin(), of_rank.end(), [](const CallRecord* a, const CallRecord* b) {
      return a->begin_ns < b->begin_ns;
    });
  return all;
}

// Of the time between two calls of a rank, what it was in no call for. Negative: it began one
// before the other had ended.
double alone_ns(const CallRecord& here, const CallRecord& next,
                const std::vector<const CallRecord*>& all) {
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

Gaps gaps_of(const CallsByRank& ranks, const AllCalls& all) {
  Gaps gaps;
  for (const auto& [seq, first] : ranks.begin()->second) {
    std::map<int, double> gap, period;
    for (const auto& [rank, calls] : ranks) {
      const auto here = calls.find(seq), next = calls.find(seq + 1);
      if (here == calls.end() || next == calls.end()) break;
      const double alone = alone_ns(*here->second, *next->second, all.at(rank));
      if (alone < 0) break;
      gap[rank] = alone;
      period[rank] = static_cast<double>(next->second->begin_ns - here->second->begin_ns);
    }
    if (gap.size() < ranks.size()) continue;
    std::vector<double> alone, periods;
    for (const auto& [rank, ns] : gap) alone.push_back(ns);
    for (const auto& [rank, ns] : period) periods.push_back(ns);
    const double usual = median(std::move(alone));
    for (const auto& [rank, ns] : gap) gaps.excess_ns[rank].push_back(ns - usual);
    gaps.period_ns.push_back(median(std::move(periods)));
  }
  return gaps;
}

std::optional<LateRanks> find_late(uint32_t comm, const CallsByRank& ranks, const AllCalls& all,
                                   double least_cost, const std::vector<int>& passed_over) {
  Gaps gaps = gaps_of(ranks, all);
  if (gaps.period_ns.size() < kLeastCalls) return std::nullopt;
  const double period = median(gaps.period_ns);
  LateRanks slow;
  slow.comm = comm;
  slow.calls = gaps.period_ns.size();
  std::map<int, double> late_ns;
  std::vector<double> all_late_ns;
  for (const auto& [rank, excess] : gaps.excess_ns)
    all_late_ns.push_back(late_ns[rank] = median(excess));
  const double least = std::max(least_cost * period, chance_above(std::move(all_late_ns)));
  for (const auto& [rank, late] : late_ns) {
    if (late < least) continue;
    if (std::binary_search(passed_over.begin(), passed_over.end(), rank)) continue;
    slow.ranks.push_back(rank);
    if (late < slow.late_ns) continue;
    slow.late_ns = late;
    slow.latest = rank;
    slow.latest_late_ns = std::move(gaps.excess_ns[rank]);
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
  const auto [comm, ranks] = busiest(calls);
  if (ranks.size() < 2) return std::nullopt;
  return find_late(comm, ranks, calls_by_rank(calls), least_cost, passed_over);
}

}  // namespace sennit::diagnose
