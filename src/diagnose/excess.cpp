// excess.cpp: see diagnose/excess.hpp.
#include "diagnose/excess.hpp"

#include <cmath>
#include <cstddef>
#include <map>

#include "base/median.hpp"

namespace sennit::diagnose {
namespace {

// Edges that should take as long say something of their rate, whatever they move.
constexpr double kLeastServiceNs = 500'000;

double part_of(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// The deviation of the mean of some numbers. Nothing is known of a single one.
double chance_of_mean(const std::vector<double>& numbers) {
  if (numbers.size() < 2) return 0;
  double sum = 0, squares = 0;
  for (const double number : numbers) {
    sum += number;
    squares += number * number;
  }
  const auto count = static_cast<double>(numbers.size());
  return std::sqrt(std::max(0.0, squares - sum * sum / count) / (count * (count - 1)));
}

}  // namespace

Excess::Excess(const TierTree& tree, const ExpectedPlan& expected, const ObservedPlan& observed,
               const LinkTraffic& traffic)
    : tree_(tree), expected_(expected), observed_(observed), traffic_(traffic) {
  measure();
}

// 0: not known.
double Excess::should_take(const std::pair<int, int>& edge) const {
  const auto well = observed_.well_service_ns.find(edge);
  if (well != observed_.well_service_ns.end()) return well->second;
  const auto expected = expected_.service_ns.find(edge);
  return expected != expected_.service_ns.end() ? expected->second : 0;
}

// What edges took before is known by some calls alone. Where they differ from others of their tier
// by no more than these let them, what the others took tells as much (James and Stein): so what one
// took is moved to their mean, the more the more of it is chance.
void Excess::pool_before(std::vector<double>* logs) {
  if (!known_before() || observed_.well_calls == 0) return;
  constexpr size_t kLeastAlike = 4;
  const double times_fewer =
      static_cast<double>(observed_.calls.size()) / static_cast<double>(observed_.well_calls);
  const auto before = [&](uint32_t e) {
    const EdgeTime& edge = (*observed_.edges.front())[edges_[e].at];
    return std::log(should_take({edge.from, edge.to}) / static_cast<double>(edge.bytes));
  };
  std::map<int, std::vector<uint32_t>> tiers;
  for (uint32_t e = 0; e < edges_.size(); e++) tiers[edges_[e].tier].push_back(e);
  for (const auto& [tier, alike] : tiers) {
    double mean = 0, differ = 0, chance = 0;
    for (const uint32_t e : alike) mean += before(e) / static_cast<double>(alike.size());
    for (const uint32_t e : alike) {
      differ += std::pow(before(e) - mean, 2);
      chance += times_fewer * std::pow(edges_[e].chance, 2);
    }
    const double part = alike.size() < kLeastAlike ? 0 : differ > chance ? chance / differ : 1;
    for (const uint32_t e : alike) {
      (*logs)[e] += part * (before(e) - mean);
      edges_[e].chance *= std::sqrt(1 + (1 - part) * times_fewer);
    }
  }
}

// Against what they took while all was well, or what the simulator says; where neither says
// anything, against edges of the same tier. What makes all tiers slower is no link.
void Excess::measure() {
  std::map<int, std::vector<double>> by_tier;
  std::vector<double> logs;
  for (uint32_t at = 0; at < traffic_.edges(); at++) {
    const EdgeTime& edge = (*observed_.edges.front())[at];
    const double well = should_take({edge.from, edge.to});
    const bool known = well > 0;
    const double should = known ? well : static_cast<double>(edge.bytes);
    const bool tells = edge.bytes >= kLeastEdgeBytes || (known && should >= kLeastServiceNs);
    if (should <= 0 || !tells || (absolute() && !known)) continue;
    std::vector<double> services;  // as logarithms
    for (size_t call = 0; call < observed_.edges.size(); call++)
      if (const EdgeTime* const there = traffic_.edge_of(call, at); there && there->service_ns > 0)
        services.push_back(std::log(there->service_ns));
    if (services.empty()) continue;
    const double chance = chance_of_mean(services), usual = trimmed_mean(std::move(services));
    logs.push_back(usual - std::log(should));
    const int tier = tree_.crossing_tier(edge.from, edge.to);
    edges_.push_back({at, 0, std::exp(usual / 2), tier, std::exp(usual), chance});
  }
  pool_before(&logs);
  for (size_t e = 0; e < edges_.size(); e++) by_tier[edges_[e].tier].push_back(logs[e]);
  constexpr double kLowerQuarter = 0.25;
  std::map<int, double> usual;
  double all_tiers = 1e9;
  for (const auto& [tier, of_tier] : by_tier) {
    usual[tier] = part_of(of_tier, kLowerQuarter);
    all_tiers = std::min(all_tiers, usual[tier]);
  }
  if (!by_tier.empty()) common_ = std::max(0.0, all_tiers);
  for (size_t e = 0; e < edges_.size(); e++)
    edges_[e].excess =
        absolute() ? logs[e] - common_ : std::max(0.0, logs[e] - usual[edges_[e].tier]);
  weigh();
  usual_ = usual_excess();
  if (well_ns() > 0)
    call_excess_ =
        std::log(usual_time(observed_.time_ns) / well_ns()) - (observed_.well_ns > 0 ? 0 : common_);
  of_call_ = std::max(0.0, call_excess_ - usual_);
  for (const Edge& edge : edges_) {
    of_all_ += edge.weight * of(edge);
    all_beyond_call_ += edge.weight * beyond_call(edge);
  }
}

// The more the edges of a tier differ from one another, the less one of them says: those that share
// an uplink take turns on it as it happens, and those that share nothing take what they took.
void Excess::weigh() {
  constexpr double kLeast = 0.02;  // chance makes them differ by so much
  std::map<int, std::vector<double>> tiers;
  for (const Edge& edge : edges_) tiers[edge.tier].push_back(edge.excess);
  std::map<int, double> differ;
  for (auto& [tier, excess] : tiers) {
    const double middle = median(excess);
    for (double& one : excess) one = std::abs(one - middle);
    differ[tier] = std::max(kLeast, median(std::move(excess)));
  }
  for (Edge& edge : edges_) edge.weight /= differ[edge.tier];
}

// By a little, all may be slower than expected: the edges of every tier.
double Excess::usual_excess() const {
  constexpr double kMostOfItself = 0.02, kMostExpected = 0.05;
  const double most = known_before() ? kMostOfItself : kMostExpected;
  if (!absolute()) return 0;
  std::map<int, std::vector<std::pair<double, double>>> tiers;
  for (const Edge& edge : edges_) tiers[edge.tier].emplace_back(edge.excess, edge.weight);
  double common = most;
  for (auto& [tier, weighted] : tiers)
    common = std::min(common, weighted_median(std::move(weighted)));
  return std::max(0.0, common);
}

}  // namespace sennit::diagnose
