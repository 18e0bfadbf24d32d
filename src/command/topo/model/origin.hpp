// origin.hpp: who stands behind the figures of a tree's groups, which a contraction forgets.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::topo {

// Who stands behind a group's egress: the links that leave it.
struct Origin {
  std::string sources;  // "file + hwloc"; empty: nobody
  int cables = 0;       // 0: unknown
};
// The origins of all groups of a tree.
struct Origins {
  std::vector<Origin> of_group;
  std::vector<int> group_of_vertex;  // where hosts and switches belong; -1: nowhere
};
// `tree` is what contract() made of these. All ranks are on hosts of the fabric.
Result<Origins> find_origins(const Fabric& fabric, const TierTree& tree,
                             const std::vector<Placement>& ranks);

}  // namespace sennit::topo
