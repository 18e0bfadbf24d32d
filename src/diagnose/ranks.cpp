// ranks.cpp: see diagnose/ranks.hpp.
#include "diagnose/ranks.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/median.hpp"
#include "diagnose/calls.hpp"

namespace sennit {
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

Gaps gaps_of(const CallsByRank& ranks) {
  Gaps gaps;
  for (const auto& [seq, first] : ranks.begin()->second) {
    std::map<int, double> gap, period;
    for (const auto& [rank, calls] : ranks) {
      const auto here = calls.find(seq), next = calls.find(seq + 1);
      if (here == calls.end() || next == calls.end()) break;
      gap[rank] = static_cast<double>(next->second->begin_ns - here->second->end_ns);
      period[rank] = static_cast<double>(next->second->begin_ns - here->second->begin_ns);
    }
    if (gap.size() < ranks.size()) continue;
    std::vector<double> all, periods;
    for (const auto& [rank, ns] : gap) all.push_back(ns);
    for (const auto& [rank, ns] : period) periods.push_back(ns);
    const double usual = median(std::move(all));
    for (const auto& [rank, ns] : gap) gaps.excess_ns[rank].push_back(ns - usual);
    gaps.period_ns.push_back(median(std::move(periods)));
  }
  return gaps;
}

std::optional<SlowRank> find_late(uint32_t comm, const CallsByRank& ranks, double least_cost) {
  Gaps gaps = gaps_of(ranks);
  if (gaps.period_ns.size() < kLeastCalls) return std::nullopt;
  const double period = median(gaps.period_ns);
  SlowRank slow;
  slow.comm = comm;
  slow.calls = gaps.period_ns.size();
  for (auto& [rank, excess] : gaps.excess_ns) {
    const double late = median(std::move(excess));
    if (late < least_cost * period) continue;
    slow.ranks.push_back(rank);
    slow.late_ns = std::max(slow.late_ns, late);
  }
  slow.cost = period > 0 ? slow.late_ns / period : 0;
  // Where half of them are late, it is the others that are early.
  if (slow.ranks.empty() || 2 * slow.ranks.size() > ranks.size()) return std::nullopt;
  return slow;
}

std::optional<SlowRank> find_slow_steps(const JobRecording& job, double least_cost) {
  constexpr double kLeastFactor = 1.5;
  std::map<int, double> per_byte, part;
  std::vector<double> all;
  for (const RankRecording& rank : job.ranks) {
    double bytes = 0, ns = 0;
    for (const TraceEvent& event : rank.events) {
      if (!event.is_step() || event.is_message()) continue;
      bytes += event.bytes;
      ns += static_cast<double>(event.after(event.last));
    }
    if (bytes == 0 || rank.events.size() < 2) continue;
    per_byte[rank.rank] = ns / bytes;
    const auto span =
        static_cast<double>(rank.events.back().posted_ns - rank.events.front().posted_ns);
    part[rank.rank] = span > 0 ? ns / span : 0;
    all.push_back(ns / bytes);
  }
  if (all.size() < 3) return std::nullopt;
  const double usual = median(std::move(all));
  SlowRank slow;
  slow.what = SlowRank::What::local_steps;
  for (const auto& [rank, ns] : per_byte) {
    const double factor = ns / usual, cost = part[rank] * (1 - 1 / factor);
    if (factor < kLeastFactor || cost < least_cost) continue;
    slow.ranks.push_back(rank);
    slow.factor = std::max(slow.factor, factor);
    slow.cost = std::max(slow.cost, cost);
  }
  if (slow.ranks.empty() || 2 * slow.ranks.size() > per_byte.size()) return std::nullopt;
  return slow;
}

}  // namespace

std::optional<SlowRank> find_slow_rank(const JobRecording& job, double least_cost) {
  const std::vector<CallRecord> calls = find_calls(job);
  const auto [comm, ranks] = busiest(calls);
  if (ranks.size() >= 2)
    if (std::optional<SlowRank> late = find_late(comm, ranks, least_cost)) return late;
  return find_slow_steps(job, least_cost);
}

}  // namespace sennit
