// slow_boundary.cpp: see topology/fabric/slow_boundary.hpp.
#include "topology/fabric/slow_boundary.hpp"

#include <algorithm>

namespace sennit {
namespace {

constexpr uint32_t kWhole = 1000;
constexpr size_t kLeastEntryBytes = 9;  // an empty name's length, the direction, the share

}  // namespace

TierTree slowed(const TierTree& tree, const std::vector<SlowBoundary>& slow) {
  TierTree result = tree;
  for (Group& group : result.groups) {
    for (const SlowBoundary& boundary : slow) {
      if (group.name.empty() || group.name != boundary.group || group.parent < 0) continue;
      Capacity& capacity = boundary.egress ? group.egress : group.ingress;
      if (!capacity.known()) continue;
      capacity.bytes_per_s =
          std::max<uint64_t>(1, capacity.bytes_per_s / kWhole * boundary.permille);
      capacity.provenance = Provenance::measured;
    }
  }
  return result;
}

void write(ByteWriter& out, const std::vector<SlowBoundary>& slow) {
  out.u32(static_cast<uint32_t>(slow.size()));
  for (const SlowBoundary& boundary : slow)
    out.text(boundary.group).flag(boundary.egress).u32(boundary.permille);
}

std::vector<SlowBoundary> read_slow_boundaries(ByteReader& in) {
  std::vector<SlowBoundary> slow(in.count(kLeastEntryBytes));
  for (SlowBoundary& boundary : slow) {
    boundary.group = in.text();
    boundary.egress = in.flag();
    boundary.permille = in.u32();
    if (boundary.permille < 1 || boundary.permille > kWhole) in.fail();
  }
  return slow;
}

}  // namespace sennit
