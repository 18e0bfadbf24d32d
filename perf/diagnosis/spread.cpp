// spread.cpp: see perf/diagnosis/spread.hpp.
#include "perf/diagnosis/spread.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "base/median.hpp"

namespace sennit::diagnose {

const char* const kSpreadHead =
    "| call | of | 1% | 5% | 25% | 50% | 75% | 95% | 99% | deviation | of how many |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n";

void Spread::add(const Spread& other) {
  calls.insert(calls.end(), other.calls.begin(), other.calls.end());
  edges.insert(edges.end(), other.edges.begin(), other.edges.end());
}

Spread spread_of(const ObservedPlan& observed) {
  Spread spread;
  const double usual = median(observed.time_ns);
  for (const double took : observed.time_ns) spread.calls.push_back(std::log(took / usual));
  std::map<std::pair<int, int>, std::vector<double>> services;
  for (const CallEdges& call : observed.edges)
    for (const EdgeTime& edge : *call)
      if (edge.bytes >= kLeastEdgeBytes && edge.service_ns > 0)
        services[{edge.from, edge.to}].push_back(edge.service_ns);
  for (const CallEdges& call : observed.edges) {
    std::vector<double> apart;
    for (const EdgeTime& edge : *call)
      if (edge.bytes >= kLeastEdgeBytes && edge.service_ns > 0)
        apart.push_back(std::log(edge.service_ns / median(services[{edge.from, edge.to}])));
    if (apart.empty()) continue;
    const double all = median(apart);
    for (const double one : apart) spread.edges.push_back(one - all);
  }
  return spread;
}

std::string spread_text(const std::vector<double>& logarithms) {
  constexpr int kPercents[] = {1, 5, 25, 50, 75, 95, 99};
  constexpr double kWhole = 100;
  if (logarithms.empty()) return "none";
  std::vector<double> sorted = logarithms;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  double squares = 0;
  for (const double one : sorted) squares += one * one;
  for (const int percent : kPercents) {
    const double place = percent / kWhole * static_cast<double>(sorted.size() - 1);
    text += fmt::format("{:+.3f} | ", sorted[static_cast<size_t>(std::lround(place))]);
  }
  return text + fmt::format("{:.3f} | {}", std::sqrt(squares / static_cast<double>(sorted.size())),
                            sorted.size());
}

}  // namespace sennit::diagnose
