// anew.hpp: what it brings to plan anew where a fabric carries less than was thought, or more.
#pragma once

#include <cstdint>

#include "collectives/algorithm.hpp"
#include "plan/planner.hpp"

namespace sennit {

// Both by the simulator, on the fabric as it is.
struct PlannedAnew {
  Plan plan;
  uint64_t stale_ns = 0;  // with the schedule that runs
  uint64_t anew_ns = 0;   // with `plan`
  // What part of the time it saves; negative: it takes longer.
  double gain() const {
    return stale_ns == 0 ? 0 : 1 - static_cast<double>(anew_ns) / static_cast<double>(stale_ns);
  }
};

// `stale` was planned on `planned`, a tree with the groups and positions of `actual`, but other
// capacities. Errors: those of the planner; a call that cannot be simulated; one of so many
// messages that it would take long.
Result<PlannedAnew> plan_anew(const TierTree& planned, const TierTree& actual,
                              const Request& request, const Plan& stale,
                              const PlanOptions& options);

}  // namespace sennit
