// slow_boundary.hpp: what traffic has shown of a fabric while a job runs: boundaries that carry
// less than their capacity.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// One boundary in one direction. Capacities are told in parts of a thousand, so that all ranks
// compute with the same number.
struct SlowBoundary {
  std::string group;  // Group::name, of a host or a switch
  bool egress = true;
  uint32_t permille = 1000;  // of the capacity that it still carries; 1 to 1000
  bool operator==(const SlowBoundary&) const = default;
};

// The tree with these capacities, as measured ones. Positions and groups stay what they are; names
// that it does not have are passed over, since a part of a job does not see every boundary.
TierTree slowed(const TierTree& tree, const std::vector<SlowBoundary>& slow);

// As bytes between processes. The reader is not ok where a share is not within 1 to 1000.
void write(ByteWriter& out, const std::vector<SlowBoundary>& slow);
std::vector<SlowBoundary> read_slow_boundaries(ByteReader& in);

}  // namespace sennit
