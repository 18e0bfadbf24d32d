// calibration.hpp: fits the cost model's constants to times that were measured on the fabric
// itself.
//
// Probes give capacities and latency classes; what a plan takes beyond them shows only in running
// it: how long a message keeps a core, what a shaper lets pass at once, how much of a capacity is
// payload, how long a message is on its way when ranks share cores. calibrate() looks for the
// constants under which the planner's own closed form comes nearest to a trace of (plan, measured
// time): least mean |log(predicted / measured)|, found by coordinate descent over a grid, one
// constant after the other, beginning with the model as it is. A constant that the trace does not
// tell of stays as it was, and so does one that gains less than 1%. What a call whose data goes one
// way is timed with beside the plan (a barrier, less what barriers alone take) is fitted as well,
// and forgotten. Constants stay within kMostPermille and kMostNs, whatever was measured: what is
// found can be kept and read. Pure. Cost: a few hundred predictions for each run in the trace.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plan/planner.hpp"

namespace sennit {

// The largest factors and times that a cost model takes, from a trace or from a file.
constexpr uint64_t kMostPermille = 1'000'000;
constexpr uint64_t kMostNs = 1'000'000'000'000'000;

// One plan that ran, with the time of the slowest rank.
struct TimedPlan {
  Request request;
  std::string algorithm;
  Parameters parameters;
  uint64_t measured_ns = 0;
};

// The first run that took less than any schedule can on the tree's rates: they are wrong, and a
// model fitted to both would be wrong everywhere. Only runs are looked at that are far above what a
// buffer lets pass that nobody declared, 16 MiB or a bound of 5 ms; what is declared of such is
// taken off, and a tenth. None: nullptr.
const TimedPlan* below_bound(const TierTree& tree, std::span<const TimedPlan> trace);

// `options.cost` is where it begins.
CostModel calibrate(const TierTree& tree, const PlanOptions& options,
                    std::span<const TimedPlan> trace);

// The typical factor between predicted and measured, in permille: 1000 is exact. 0 for an empty
// trace.
uint64_t typical_factor_permille(const TierTree& tree, const PlanOptions& options,
                                 std::span<const TimedPlan> trace);

}  // namespace sennit
