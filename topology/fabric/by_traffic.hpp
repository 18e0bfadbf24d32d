// by_traffic.hpp: a fabric with the capacities that a job's traffic has shown it to have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/fabric/fabric.hpp"
#include "topology/fabric/slow_boundary.hpp"

namespace sennit {

// The links of these boundaries carry together what slowed() says of them on `tree`, which is the
// fabric's, in the proportions of what they are declared with. They are measured figures then, and
// their source is "by traffic 2026-11-21 12:03 UTC"; `when_s`: seconds since 1970. So the fabric's
// tree is slowed(tree), but for two switches that one link joins, whose boundary it is in common.
// What cannot be said of links is put into a note: a boundary of several switches, one whose
// capacity is unknown, or one that stands for several of which another is narrower. Errors:
// contract()'s.
Result<Fabric> by_traffic(Fabric fabric, const TierTree& tree,
                          const std::vector<SlowBoundary>& slow, int64_t when_s);

}  // namespace sennit
