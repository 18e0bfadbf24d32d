// history.cpp: see diagnose/history.hpp.
#include "diagnose/history.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

// Of fewer calls neither what was before nor what is now can be told.
constexpr size_t kLeastCalls = 4;

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

double mean(const std::vector<double>& logs, size_t from, size_t to) {
  const auto at = [&](size_t i) { return logs.begin() + static_cast<std::ptrdiff_t>(i); };
  return std::accumulate(at(from), at(to), 0.0) / static_cast<double>(to - from);
}

// The squares that are left of logarithms where each is told by the mean of its stretch, before
// `change` or from there on, and by how far the one before it was from its own: what makes one call
// longer is often there in the next. That share of it is chosen that leaves least.
double left_of(const std::vector<double>& logs, size_t change) {
  const double before = change > 0 ? mean(logs, 0, change) : 0;
  const double after = mean(logs, change, logs.size());
  double all = 0, of_earlier = 0, products = 0, last = 0;
  for (size_t i = 0; i < logs.size(); i++) {
    const double off = logs[i] - (i < change ? before : after);
    all += off * off;
    of_earlier += last * last;
    products += off * last;
    last = off;
  }
  const double share = of_earlier > 0 ? std::clamp(products / of_earlier, 0.0, 1.0) : 0;
  return std::max(0.0, all - 2 * share * products + share * share * of_earlier);
}

}  // namespace

// By the ratio of likelihoods: a change has to tell more than that calls are like those before them
// does, which tells much of a step, too. The fewer calls there are the more of what is left a
// change may take away by chance.
size_t find_change(const std::vector<double>& times_ns, double least) {
  constexpr double kLeastRatio = 18;  // its logarithm, twice
  const size_t calls = times_ns.size();
  if (calls < 2 * kLeastCalls) return 0;
  const std::vector<double> logs = without_outliers(times_ns);
  size_t best = 0;
  double left = std::numeric_limits<double>::infinity();
  for (size_t split = kLeastCalls; split + kLeastCalls <= calls; split++) {
    if (mean(logs, split, calls) - mean(logs, 0, split) < std::log(least)) continue;
    if (const double now = left_of(logs, split); now < left) best = split, left = now;
  }
  return static_cast<double>(calls) * std::log(left_of(logs, 0) / left) >= kLeastRatio ? best : 0;
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
  observed->well_calls = change;
  const auto end = static_cast<std::ptrdiff_t>(change);
  observed->well_ns =
      usual_time(std::vector<double>(observed->time_ns.begin(), observed->time_ns.begin() + end));
  observed->calls.erase(observed->calls.begin(), observed->calls.begin() + end);
  observed->edges.erase(observed->edges.begin(), observed->edges.begin() + end);
  observed->time_ns.erase(observed->time_ns.begin(), observed->time_ns.begin() + end);
  return change;
}

}  // namespace sennit::diagnose
