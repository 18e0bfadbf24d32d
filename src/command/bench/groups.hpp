// groups.hpp: how --split and --mesh divide the ranks of `sennit bench` into groups, which then all
// run at once.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "command/bench/bench.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::bench {

// By group its ranks, as members of the world; groups in the order of their first ranks, members
// ascending: a member's place is its rank in the group.
using RankGroups = std::vector<std::vector<int>>;

// Of so many ranks; one group of all where the options ask for none. Errors: a rule that is none,
// another number of ranks than the mesh or the list has, a rank that is alone, a root that a group
// does not have.
Result<RankGroups> groups_of(const Options& options, int ranks);

// "2 groups of 4", "3 groups of 2 to 4".
std::string groups_text(const RankGroups& groups);

// What all groups need at least that do what was asked for at the same time. `type`, `root` and
// `bytes` as in make_case(). The tree is that of all ranks.
Bound bound_of(const Options& options, const RankGroups& groups, const TierTree& tree,
               DataType type, Op op, int root, uint64_t bytes);

}  // namespace sennit::bench
