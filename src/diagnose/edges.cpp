// edges.cpp: see diagnose/edges.hpp.
#include "diagnose/edges.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace sennit::diagnose {

TierTree slowed_down(const TierTree& tree, const Slower& slower) {
  TierTree slowed = tree;
  for (const auto& [which, factor] : slower) {
    Group& group = slowed.groups[index(which.group)];
    Capacity& capacity = which.egress ? group.egress : group.ingress;
    capacity.bytes_per_s =
        static_cast<uint64_t>(std::max(1.0, static_cast<double>(capacity.bytes_per_s) / factor));
  }
  return slowed;
}

std::vector<DirectedGroup> way_of(const TierTree& tree, int from, int to) {
  std::vector<DirectedGroup> way;
  const auto climb = [&](int begin, int other, bool egress) {
    for (int g = tree.leaf_of_position[index(begin)];; g = tree.groups[index(g)].parent) {
      const Group& group = tree.groups[index(g)];
      if (other >= group.first && other < group.first + group.size) return;
      way.push_back({g, egress});
    }
  };
  climb(from, to, true);
  climb(to, from, false);
  return way;
}

}  // namespace sennit::diagnose
