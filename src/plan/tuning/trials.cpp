// trials.cpp: see plan/tuning/trials.hpp.
#include "plan/tuning/trials.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/median.hpp"

namespace sennit {

std::vector<double> typical_times(const std::vector<double>& times_us, size_t plans) {
  std::vector<std::vector<double>> shares(plans);  // of the round's mean
  double least_mean = std::numeric_limits<double>::infinity();
  for (size_t first = 0; first + plans <= times_us.size(); first += plans) {
    double logarithms = 0;
    for (size_t i = 0; i < plans; i++) logarithms += std::log(times_us[first + i]);
    const double mean = std::exp(logarithms / static_cast<double>(plans));
    if (!(mean > 0 && std::isfinite(mean))) continue;
    least_mean = std::min(least_mean, mean);
    for (size_t i = 0; i < plans; i++) shares[i].push_back(times_us[first + i] / mean);
  }
  std::vector<double> typical(plans, std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < plans; i++)
    if (!shares[i].empty()) {
      typical[i] = median(shares[i]) * least_mean;
    } else {  // no round in which all have a time
      for (size_t at = i; at < times_us.size(); at += plans)
        typical[i] = std::min(typical[i], times_us[at]);
    }
  return typical;
}

uint64_t without_barriers(uint64_t took_ns, size_t calls, size_t barriers,
                          std::vector<double> barriers_ns) {
  constexpr uint64_t kLeastShare = 20;
  const uint64_t theirs_ns = barriers * static_cast<uint64_t>(median(std::move(barriers_ns)));
  return std::max(took_ns - std::min(took_ns, theirs_ns), took_ns / kLeastShare) / calls;
}

Trials::Trials(const Plan& plan, const Request& request, const TierTree& tree, Effort effort)
    : rounds_(effort.rounds), turn_calls_(effort.calls), together_(effort.together) {
  // What was kept before is tried again beside the others; its prediction may be another model's.
  const size_t known = plan.candidates[0].measured_ns > 0 && plan.candidates.size() > 1 ? 1 : 0;
  const uint64_t best_ns = plan.candidates[known].predicted_ns;
  Plan chosen = plan;
  chosen.candidates.clear();
  for (size_t i = 0; i < plan.candidates.size() && plans_.size() < effort.plans + known; i++) {
    if (i >= known && plan.candidates[i].predicted_ns / kHopeless > best_ns) break;
    plans_.push_back(chosen);
    plans_.back().candidates = {plan.candidates[i]};  // not all: there may be a thousand of each
    choose(request, tree, 0, &plans_.back());
  }
  times_us_.assign(rounds_ * plans_.size(), std::numeric_limits<double>::infinity());
}

Trials::Turn Trials::next() {
  if (decided_) return {winner_, -1};
  const size_t call = calls_++, turn = call / turn_calls_, n = plans_.size();
  const bool timed = turn >= n && call % turn_calls_ + 1 == turn_calls_;
  return {turn % n, timed ? static_cast<int>(turn - n) : -1};
}

void Trials::decide(const std::vector<double>& slowest_us) {
  const size_t n = plans_.size();
  measured_us_ = typical_times(slowest_us, n);
  winner_ = 0;
  for (size_t i = 1; i < n; i++)
    if (measured_us_[i] < measured_us_[winner_] * (winner_ == 0 ? 0.97 : 1.0)) winner_ = i;
  times_us_ = slowest_us;
  decided_ = true;
}

}  // namespace sennit
