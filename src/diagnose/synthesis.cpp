// synthesis.cpp: see diagnose/synthesis.hpp.
#include "diagnose/synthesis.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

double service_of(const ExpectedPlan& plan, int from, int to) {
  const auto found = plan.service_ns.find({from, to});
  return found != plan.service_ns.end() ? found->second : 0;
}

double weighted_median(std::vector<std::pair<double, double>> weighted) {
  constexpr double kHalf = 0.5;
  std::sort(weighted.begin(), weighted.end());
  double all = 0, below = 0;
  for (const auto& [value, weight] : weighted) all += weight;
  for (const auto& [value, weight] : weighted)
    if ((below += weight) >= kHalf * all) return value;
  return 0;
}

}  // namespace

Synthesis::Synthesis(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
                     const ExpectedPlan& well, TookAndWell of)
    : tree_(tree), plan_(plan), blueprint_(blueprint), well_(well), of_(std::move(of)) {
  if (of_.well_ns <= 0) of_.well_ns = well.time_ns;
  for (TookAndWell::OfEdge& edge : of_.edges)
    if (edge.well_ns <= 0) edge.well_ns = service_of(well, edge.from, edge.to);
}

// In time, and not in ratios: what is short says little, and is short by chance. What became faster
// has more for itself where others wait, and says nothing. Where ranks work between messages all
// edges are slower by less than simulated ones, so that it is asked which are, and in which
// proportion. What is slower by far more waits for something else, as a core.
double Synthesis::left_by(const ExpectedPlan& slow) const {
  std::vector<std::pair<double, double>> shares;  // how much of what is shown there was, and weight
  std::vector<std::pair<double, double>> became_and_shown;
  double all = 0;
  for (const TookAndWell::OfEdge& edge : of_.edges) {
    const double became = std::max(0.0, edge.took_ns - edge.well_ns);
    const double shown =
        std::max(0.0, service_of(slow, edge.from, edge.to) - service_of(well_, edge.from, edge.to));
    became_and_shown.emplace_back(became, shown);
    if (shown > 0) shares.emplace_back(became / shown, shown);
    all += became;
  }
  constexpr double kMostShare = 1.3;
  const double share = std::min(kMostShare, weighted_median(std::move(shares)));
  double left = 0;
  for (const auto& [became, shown] : became_and_shown) left += std::abs(became - share * shown);
  const double became = of_.took_ns - of_.well_ns, shown = slow.time_ns - well_.time_ns;
  const double time_left = became > 0 ? std::abs(became - shown) / became : 1;
  return ((all > 0 ? left / all : 1) + time_left) / 2;
}

double Synthesis::left_if_alike(const std::vector<uint32_t>& edges) const {
  const auto became = [&](const TookAndWell::OfEdge& edge) {
    return std::max(0.0, edge.took_ns - edge.well_ns);
  };
  double all = 0;
  for (const TookAndWell::OfEdge& edge : of_.edges) all += became(edge);
  std::vector<double> of_these;
  for (const uint32_t e : edges) of_these.push_back(became(of_.edges[e]));
  const double usual = median(of_these);
  double left = all;
  for (const double one : of_these) left += std::abs(one - usual) - one;
  return all > 0 ? left / all : 1;
}

double Synthesis::left_by(const std::vector<DirectedGroup>& links, double most) const {
  constexpr int kTries = 3;
  constexpr double kNear = 0.03;
  // As long as the whole call would take.
  const double should_ns = well_.time_ns + of_.took_ns - of_.well_ns;
  most = std::max(1.0, most);
  double factor = std::clamp(should_ns / well_.time_ns, 1.0, most);
  double least = std::numeric_limits<double>::infinity();
  for (int tries = 0; tries < kTries; tries++) {
    Slower slower;
    for (const DirectedGroup& link : links) slower.emplace_back(link, factor);
    const ExpectedPlan slow =
        expected_of(slowed_down(tree_, slower), plan_, blueprint_, of_.took_ns);
    if (slow.time_ns <= 0) break;
    least = std::min(least, left_by(slow));
    const double again = should_ns / slow.time_ns;
    if (std::abs(again - 1) < kNear) break;
    const double before = std::exchange(factor, std::clamp(factor * again, 1.0, most));
    if (factor == before) break;
  }
  return least;
}

}  // namespace sennit::diagnose
