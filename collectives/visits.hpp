// visits.hpp: the order in which ranks that all send to one another do so.
//
// Rank p visits p + 1, p + 2, ... while p - 1, p - 2, ... visit it, so that at any time every rank
// sends to one and receives from another. Where the groups of every tier are equal, the sums are
// taken tier by tier without a carry (the digits of a position are its child's number in each
// group): turning the tree takes any rank to any other and the order with it, so all ranks do the
// same, and whoever simulates them needs one. Pure; free to share between threads.
#pragma once

#include <vector>

#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// The order in one tree.
class Visits {
 public:
  explicit Visits(const TierTree& tree);  // O(groups)
  // Whether the groups of every tier are equal in size; of their capacities nothing is said.
  bool turns() const { return !sizes_.empty(); }
  // Whom `position` visits in its turn-th visit, and who visits it then; 0: itself. Below the
  // number of ranks; each rank once. O(depth).
  int to(int position, int turn) const;
  int from(int position, int turn) const;

 private:
  int ranks_;
  // Of groups from the root to the ranks, each a multiple of the next; empty where groups differ.
  std::vector<int> sizes_;
};

}  // namespace sennit
