// history.cpp: see diagnose/recorded/history.hpp.
#include "diagnose/recorded/history.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <span>
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

// Logarithms in two stretches, the one before `change` and the one from there on, each told by its
// mean. Sums of all that begin with the first make any change a matter of a few of them.
class Stretches {
 public:
  explicit Stretches(std::vector<double> logs) : logs_(std::move(logs)) {
    const double middle =
        std::accumulate(logs_.begin(), logs_.end(), 0.0) / static_cast<double>(logs_.size());
    double last = 0;
    for (double& log : logs_) {
      log -= middle;  // small numbers, of which differences are exact
      sums_.push_back(sums_.back() + log);
      squares_.push_back(squares_.back() + log * log);
      products_.push_back(products_.back() + log * last);
      last = log;
    }
  }
  double step(size_t change) const { return mean(change, logs_.size()) - mean(0, change); }

  // The squares that are left where each is told by its mean and by how far the one before it was
  // from its own: what makes one call longer is often there in the next. That share of it is chosen
  // that leaves least.
  double left_of(size_t change) const {
    const size_t end = logs_.size();
    const double before = mean(0, change), after = mean(change, end), last = logs_.back() - after;
    const double all = squares_off(0, change, before) + squares_off(change, end, after);
    const double of_earlier = all - last * last;
    double products = products_off(0, change, before) + products_off(change, end, after);
    if (change > 0) products += (logs_[change] - after) * (logs_[change - 1] - before);
    const double share = of_earlier > 0 ? std::clamp(products / of_earlier, 0.0, 1.0) : 0;
    return std::max(0.0, all - 2 * share * products + share * share * of_earlier);
  }

 private:
  double sum(size_t from, size_t to) const { return sums_[to] - sums_[from]; }
  double mean(size_t from, size_t to) const {
    return from < to ? sum(from, to) / static_cast<double>(to - from) : 0;
  }
  // Of how far each is from the mean of its stretch: squares, and products with the one before.
  double squares_off(size_t from, size_t to, double its_mean) const {
    return squares_[to] - squares_[from] - its_mean * sum(from, to);
  }
  double products_off(size_t from, size_t to, double its_mean) const {
    if (to < from + 2) return 0;
    const auto pairs = static_cast<double>(to - from - 1);
    return products_[to] - products_[from + 1] -
           its_mean * (sum(from + 1, to) + sum(from, to - 1)) + pairs * its_mean * its_mean;
  }

  std::vector<double> logs_;  // less the mean of all
  // Of the first ones, by how many they are; a product is that of one with the one before it.
  std::vector<double> sums_ = {0}, squares_ = {0}, products_ = {0};
};

// What each edge usually took in these calls. They have the same edges in the same order, so that
// its place tells most of them; where some were lost of one call those that follow are looked up.
std::map<std::pair<int, int>, double> usual_services(std::span<const CallEdges> calls) {
  const auto ends = [](const EdgeTime& edge) { return std::pair(edge.from, edge.to); };
  const std::vector<EdgeTime>& first = *calls.front();
  std::vector<std::vector<double>> in_place(first.size());
  std::map<std::pair<int, int>, std::vector<double>> others;
  for (const CallEdges& edges : calls)
    for (size_t at = 0; at < edges->size(); at++) {
      const EdgeTime& edge = (*edges)[at];
      if (edge.service_ns <= 0) continue;
      const bool here = at < first.size() && ends(edge) == ends(first[at]);
      (here ? in_place[at] : others[ends(edge)]).push_back(edge.service_ns);
    }
  for (size_t at = 0; at < first.size(); at++) {
    if (in_place[at].empty()) continue;
    std::vector<double>& all = others[ends(first[at])];
    all.insert(all.end(), in_place[at].begin(), in_place[at].end());
  }
  std::map<std::pair<int, int>, double> usual;
  for (auto& [edge, services] : others) usual[edge] = usual_time(std::move(services));
  return usual;
}

}  // namespace

// By the ratio of likelihoods: a change has to tell more than that calls are like those before them
// does, which tells much of a step, too. The fewer calls there are the more of what is left a
// change may take away by chance.
size_t find_change(const std::vector<double>& times_ns, double least) {
  constexpr double kLeastRatio = 18;  // its logarithm, twice
  const size_t calls = times_ns.size();
  if (calls < 2 * kLeastCalls) return 0;
  const Stretches stretches(without_outliers(times_ns));
  size_t best = 0;
  double left = std::numeric_limits<double>::infinity();
  for (size_t split = kLeastCalls; split + kLeastCalls <= calls; split++) {
    if (stretches.step(split) < std::log(least)) continue;
    if (const double now = stretches.left_of(split); now < left) best = split, left = now;
  }
  const double ratio = static_cast<double>(calls) * std::log(stretches.left_of(0) / left);
  return ratio >= kLeastRatio ? best : 0;
}

size_t take_history(ObservedPlan* observed, double least) {
  const size_t change = find_change(observed->time_ns, least);
  if (change == 0) return 0;
  observed->well_service_ns = usual_services(std::span(observed->edges).first(change));
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
