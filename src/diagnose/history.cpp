// history.cpp: see diagnose/history.hpp.
#include "diagnose/history.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

// Of fewer calls neither what was before nor what is now can be told.
constexpr size_t kLeastCalls = 4;

// Means of stretches of logarithms, and the squares of how far they are from these, in O(1).
class Squares {
 public:
  explicit Squares(const std::vector<double>& logs) : sum_{0}, squares_{0} {
    for (const double log : logs) {
      sum_.push_back(sum_.back() + log);
      squares_.push_back(squares_.back() + log * log);
    }
  }
  double mean(size_t from, size_t to) const {
    return (sum_[to] - sum_[from]) / static_cast<double>(to - from);
  }
  double around_mean(size_t from, size_t to) const {
    const double sum = sum_[to] - sum_[from];
    return std::max(0.0,
                    squares_[to] - squares_[from] - sum * sum / static_cast<double>(to - from));
  }

 private:
  std::vector<double> sum_, squares_;
};

// Logarithms, of which those that are far from their neighbours' middle one are taken to be no
// farther than chance explains: the first calls make connections, and now and then one waits for
// something else. How much is chance the differences between neighbours tell, whatever changed.
std::vector<double> without_outliers(const std::vector<double>& times_ns) {
  constexpr double kTimes = 3, kLeast = 0.02;
  constexpr size_t kNeighbours = 3;
  std::vector<double> logs, apart;
  for (const double time : times_ns) logs.push_back(std::log(std::max(1.0, time)));
  for (size_t i = 1; i < logs.size(); i++) apart.push_back(std::abs(logs[i] - logs[i - 1]));
  const double most = std::max(kLeast, kTimes * median(std::move(apart)));
  std::vector<double> clipped;
  for (size_t i = 0; i < logs.size(); i++) {
    const size_t from = i - std::min(i, kNeighbours),
                 to = std::min(logs.size(), i + kNeighbours + 1);
    const double middle =
        median(std::vector<double>(logs.begin() + static_cast<std::ptrdiff_t>(from),
                                   logs.begin() + static_cast<std::ptrdiff_t>(to)));
    clipped.push_back(std::clamp(logs[i], middle - most, middle + most));
  }
  return clipped;
}

}  // namespace

size_t find_change(const std::vector<double>& times_ns, double least) {
  // So many deviations apart are the means where it is no chance: the best of many splits is looked
  // at, and of a thousand clean jobs none is to have changed.
  constexpr double kDeviations = 5;
  const size_t calls = times_ns.size();
  if (calls < 2 * kLeastCalls) return 0;
  const Squares squares(without_outliers(times_ns));
  size_t best = 0;
  double left = squares.around_mean(0, calls);
  for (size_t split = kLeastCalls; split + kLeastCalls <= calls; split++) {
    if (squares.mean(split, calls) <= squares.mean(0, split)) continue;
    const double now = squares.around_mean(0, split) + squares.around_mean(split, calls);
    if (now < left) best = split, left = now;
  }
  if (best == 0) return 0;
  const double longer = squares.mean(best, calls) - squares.mean(0, best);
  const double variance = left / static_cast<double>(calls - 2);
  const double deviation = std::sqrt(variance / static_cast<double>(best) +
                                     variance / static_cast<double>(calls - best));
  return longer >= std::log(least) && longer >= kDeviations * deviation ? best : 0;
}

size_t take_history(ObservedPlan* observed, double least) {
  const size_t change = find_change(observed->time_ns, least);
  if (change == 0) return 0;
  std::map<std::pair<int, int>, std::vector<double>> before;
  for (size_t call = 0; call < change; call++)
    for (const EdgeTime& edge : *observed->edges[call])
      if (edge.service_ns > 0) before[{edge.from, edge.to}].push_back(edge.service_ns);
  for (auto& [edge, services] : before)
    observed->well_service_ns[edge] = usual_time(std::move(services));
  const auto end = static_cast<std::ptrdiff_t>(change);
  observed->well_ns =
      usual_time(std::vector<double>(observed->time_ns.begin(), observed->time_ns.begin() + end));
  observed->calls.erase(observed->calls.begin(), observed->calls.begin() + end);
  observed->edges.erase(observed->edges.begin(), observed->edges.begin() + end);
  observed->time_ns.erase(observed->time_ns.begin(), observed->time_ns.begin() + end);
  return change;
}

}  // namespace sennit::diagnose
