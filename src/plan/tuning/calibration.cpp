// calibration.cpp: see plan/tuning/calibration.hpp.
#include "plan/tuning/calibration.hpp"
#include "plan/planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/arithmetic.hpp"
#include "cost/rates.hpp"
#include "plan/bound.hpp"

namespace sennit {
namespace {

constexpr int kPasses = 6;
// of the error so far: a smaller gain does not move a constant
constexpr double kWorthwhile = 0.99;

// The mean of |log(predicted / measured)|: a factor of two is as bad upwards as downwards, and one
// call that came late does not weigh more than its factor. Where data goes one way, `apart_ns` of a
// measured time are none of the plan's.
double error_of(const TierTree& tree, const PlanOptions& options, std::span<const TimedPlan> trace,
                uint64_t apart_ns = 0) {
  double sum = 0;
  for (const TimedPlan& run : trace) {
    const uint64_t predicted =
        predicted_ns(run.request, tree, options, run.algorithm, run.parameters) +
        (has_root(run.request.collective) ? apart_ns : 0);
    sum += std::abs(std::log(static_cast<double>(std::max<uint64_t>(1, predicted)) /
                             static_cast<double>(std::max<uint64_t>(1, run.measured_ns))));
  }
  return sum / static_cast<double>(trace.size());
}

// One constant: where it lies in the model, and values worth trying from what it is now.
struct Constant {
  uint64_t* place;
  std::vector<uint64_t> (*tried)(uint64_t now);
  uint64_t most = kMostNs;
};

// What a time or a rate is multiplied by: far steps find the region, near ones the value.
constexpr double kFactors[] = {0.25, 0.5, 0.7, 0.85, 0.95, 0.98, 1.02, 1.05, 1.2, 1.4, 2.0, 4.0};
// The same for the part of a capacity that is of use, which is known better.
constexpr double kGoodputFactors[] = {0.8, 0.9, 0.95, 0.98, 0.99, 1.01, 1.02, 1.05, 1.1};
constexpr uint64_t kLeastGoodputPermille = 200;
constexpr uint64_t kMostGoodputPermille = 1000;

std::vector<uint64_t> around(uint64_t now) {
  std::vector<uint64_t> values;
  for (const double factor : kFactors)
    values.push_back(
        std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(now) * factor)));
  return values;
}

std::vector<uint64_t> goodputs(uint64_t now) {
  std::vector<uint64_t> values;
  for (const double factor : kGoodputFactors)
    values.push_back(std::clamp<uint64_t>(static_cast<uint64_t>(static_cast<double>(now) * factor),
                                          kLeastGoodputPermille, kMostGoodputPermille));
  return values;
}

std::vector<uint64_t> bursts(uint64_t now) {
  std::vector<uint64_t> values{0, 30'000, 100'000, 300'000, 1'000'000, 3'000'000};
  if (now > 0) std::ranges::copy(around(now), std::back_inserter(values));
  return values;
}

std::vector<uint64_t> moments(uint64_t now) {
  std::vector<uint64_t> values{0, 10'000, 20'000, 30'000, 40'000, 60'000};
  if (now > 0) std::ranges::copy(around(now), std::back_inserter(values));
  return values;
}

}  // namespace

const TimedPlan* below_bound(const TierTree& tree, std::span<const TimedPlan> trace) {
  constexpr uint64_t kSurelyPermille = 900, kLongNs = 5'000'000;
  constexpr double kManyBytes = 16 << 20;
  uint64_t burst_ns = 0;
  for (const Group& group : tree.groups)
    for (const Capacity& side : {group.egress, group.ingress})
      if (side.known())
        burst_ns = std::max(burst_ns, transfer_ns(side.burst_bytes, side.bytes_per_s));
  for (const TimedPlan& run : trace) {
    const Bound bound = lower_bound(run.request, tree);
    const bool large =
        bound.time_ns >= kLongNs || payload_bytes(run.request, tree.ranks()) >= kManyBytes;
    if (bound.known && large &&
        run.measured_ns + burst_ns < scaled(bound.time_ns, kSurelyPermille, kPermille))
      return &run;
  }
  return nullptr;
}

CostModel calibrate(const TierTree& tree, const PlanOptions& options,
                    std::span<const TimedPlan> trace) {
  PlanOptions fitted = options;
  CostModel& cost = fitted.cost;
  if (cost.tiers.empty()) cost.tiers = tier_costs(tree, cost);
  if (trace.empty()) return cost;
  std::vector<Constant> constants;
  uint64_t apart_ns = 0;
  if (std::ranges::any_of(trace,
                          [](const TimedPlan& run) { return has_root(run.request.collective); }))
    constants.push_back({&apart_ns, moments});
  if (within_one_host(tree))
    constants.push_back({&cost.shared_memory_post_ns, around});
  else
    constants.insert(constants.end(),
                     {{&cost.shared_cores.message_cpu_ns, around}, {&cost.post_ns, around}});
  constants.push_back({&cost.reduce_bytes_per_s, around});
  for (size_t tier = 0; tier < cost.tiers.size(); tier++) {
    if (tier > 0)
      // Ranks have no children.
      constants.push_back({&cost.tiers[tier].latency_permille, around, kMostPermille});
    if (tier + 1 < cost.tiers.size())  // nothing crosses the root's boundary
      constants.insert(constants.end(), {{&cost.tiers[tier].burst_ns, bursts},
                                         {&cost.tiers[tier].goodput_permille, goodputs}});
  }
  double error = error_of(tree, fitted, trace, apart_ns);
  for (int pass = 0; pass < kPasses; pass++) {
    const double before = error;
    for (const Constant& constant : constants) {
      uint64_t best = *constant.place;
      for (const uint64_t unbounded : constant.tried(best)) {
        const uint64_t value = std::min(unbounded, constant.most);
        const uint64_t kept = *constant.place;
        *constant.place = value;
        const double now = error_of(tree, fitted, trace, apart_ns);
        if (now < error * kWorthwhile) {
          error = now;
          best = value;
        } else {
          *constant.place = kept;
        }
      }
      *constant.place = best;
    }
    if (error > before * kWorthwhile) break;
  }
  return cost;
}

uint64_t typical_factor_permille(const TierTree& tree, const PlanOptions& options,
                                 std::span<const TimedPlan> trace) {
  if (trace.empty()) return 0;
  return static_cast<uint64_t>(std::lround(1000 * std::exp(error_of(tree, options, trace))));
}

}  // namespace sennit
