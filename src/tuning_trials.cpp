#include "tuning_trials.hpp"

#include <algorithm>
#include <limits>

namespace sennit {

Trials::Trials(const Plan& plan, const Request& request, const TierTree& tree, Effort effort)
    : rounds_(effort.rounds), turn_calls_(effort.calls), together_(effort.together) {
  // What was kept before is tried again beside the others; its prediction may be another model's.
  const size_t known = plan.candidates[0].measured_ns > 0 && plan.candidates.size() > 1 ? 1 : 0;
  const uint64_t best_ns = plan.candidates[known].predicted_ns;
  for (size_t i = 0; i < plan.candidates.size() && plans_.size() < effort.plans + known; i++) {
    if (i >= known && plan.candidates[i].predicted_ns / kHopeless > best_ns) break;
    plans_.push_back(plan);
    choose(request, tree, i, &plans_.back());
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
  measured_us_.assign(n, std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < slowest_us.size(); i++)
    measured_us_[i % n] = std::min(measured_us_[i % n], slowest_us[i]);
  winner_ = 0;
  for (size_t i = 1; i < n; i++)
    if (measured_us_[i] < measured_us_[winner_] * (winner_ == 0 ? 0.97 : 1.0)) winner_ = i;
  decided_ = true;
}

}  // namespace sennit
