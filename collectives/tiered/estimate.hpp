// estimate.hpp: what a tiered schedule costs, in closed form from the loads that shares were chosen
// by.
#pragma once

#include "collectives/algorithm.hpp"
#include "collectives/tiered/shares.hpp"

namespace sennit::tiered {

// whole_stages as in Parameters, `rates` in the direction of all-gather. Time: O(nodes), that is,
// distinct subtrees.
Estimate estimate(const TierTree& tree, const Request& request, const StageTree& stages,
                  const Shares& shares, const GroupRates& rates, int whole_stages,
                  const CostModel& cost);

// SharedCoresEstimate::path_ns. The root's pieces first go to the ranks that hold them, from there
// to all: two passes, of which the root's load has both where there are tiers below, and the first
// only where there are none.
uint64_t path_ns(const Request& request, const Estimate& estimate);
// SharedCoresEstimate::all_messages. Time: as of estimate().
uint64_t all_messages(const Request& request, const StageTree& stages, const Shares& shares,
                      int whole_stages);

}  // namespace sennit::tiered
