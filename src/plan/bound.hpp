// bound.hpp: the least time that any schedule can take for a Request on a TierTree; bound.cpp says
// why.
#pragma once

#include "schedule/plan.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// Pure. Unknown where a capacity that it needs is. Time: O(groups * tiers).
Bound lower_bound(const Request& request, const TierTree& tree);

}  // namespace sennit
