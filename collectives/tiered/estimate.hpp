// estimate.hpp: what a tiered schedule costs, in closed form from the loads that shares were chosen
// by.
#pragma once

#include "collectives/algorithm.hpp"
#include "collectives/tiered/shares.hpp"

namespace sennit::tiered {

// whole_stages as in Parameters. Time: O(nodes), that is, distinct subtrees. `rates` in the
// direction of all-gather.
Estimate estimate(const TierTree& tree, const Request& request, const StageTree& stages,
                  const Shares& shares, int whole_stages, const CostModel& cost);

}  // namespace sennit::tiered
