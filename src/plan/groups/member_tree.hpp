// member_tree.hpp: what a tier tree is for some of its ranks.
//
// Groups that hold none of them are left out, groups that hold all of theirs in one child become
// that child with the smaller capacity, tiers that are empty then go. The same as contract() makes
// of the fabric for these ranks alone. Cost: O(members * depth).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// A tree of some of a tree's ranks, which are numbered in fabric order.
struct MemberTree {
  TierTree tree;
  std::vector<int32_t> positions;  // by position: that in the whole tree
  std::vector<uint8_t> tiers;      // by tier: that of the whole tree
  std::string kind() const;        // plans and bounds are the same where this is
};
// Of the ranks at these positions, in any order, each once.
MemberTree member_tree(const TierTree& tree, std::vector<int> positions);

}  // namespace sennit
