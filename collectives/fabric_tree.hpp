// fabric_tree.hpp: a tree over all ranks that enters every group once, with every subtree a run of
// positions.
//
// Per group, the children groups form a tree of the given fan-out between their leaders (a group's
// leader is the root where it is inside, else the first position); within each child group
// likewise. A leader serves the farther groups first. Because subtrees are runs, a gather moves
// ranges of blocks, and a reduction that adds its children and itself by position adds in fabric
// order. Every boundary is crossed by one edge into each group that does not hold the root.
// Immutable. Cost: O(groups) to make; depth: the sum over tiers of log(children) to the base of the
// fan-out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "cost/rates.hpp"
#include "schedule/plan.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// The tree of all ranks with this root. Immutable.
class FabricTree {
 public:
  struct Node {
    int32_t parent = -1;
    // The smallest group that holds both, and which of its children this one and the parent lead.
    int32_t group = 0, led = 0, led_by_parent = 0;
    int32_t begin = 0, end = 0;  // the subtree's positions
    uint32_t first_child = 0, children = 0;
  };

  FabricTree(const TierTree& tree, int root, int fan_out);  // fan_out >= 2

  const Node& node(int position) const { return nodes_[index(position)]; }
  std::span<const int32_t> children(int position) const {  // farthest first
    const Node& n = node(position);
    return {children_.data() + n.first_child, n.children};
  }
  std::span<const int32_t> top_down() const { return order_; }  // parents before their children
  int most_children() const;
  // f(p) for this position and every other on its way to the root, but for the root.
  template <typename F>
  void climb(int position, F&& f) const {
    for (int p = position; node(p).parent >= 0; p = node(p).parent) f(p);
  }
  // By group: the narrowest boundary on the way between its leader and what is outside of it.
  GroupRates to_leaders(const TierTree& tree, GroupRates rates) const;
  // How long so many bytes alone take from this position to its parent, and from there to it, over
  // such rates.
  uint64_t up_ns(int position, const GroupRates& to_leaders, uint64_t bytes) const {
    return way_ns(node(position).led, node(position).led_by_parent, to_leaders, bytes);
  }
  uint64_t down_ns(int position, const GroupRates& to_leaders, uint64_t bytes) const {
    return way_ns(node(position).led_by_parent, node(position).led, to_leaders, bytes);
  }
  // By position: numbers that are the same where the way to the root and the subtree look alike,
  // tier by tier, whichever of its parent's children a rank is.
  std::vector<uint32_t> kinds(const TierTree& tree) const;

 private:
  void list_children();
  static uint64_t way_ns(int from, int to, const GroupRates& to_leaders, uint64_t bytes) {
    return transfer_ns(bytes,
                       std::min(to_leaders.egress[index(from)], to_leaders.ingress[index(to)]));
  }

  std::vector<Node> nodes_;
  std::vector<int32_t> children_, order_;
};

// What a plan of trees chooses from, and what it chose.
inline constexpr uint16_t kFanOuts[] = {2, 4, 8, 16};
int fan_out(const Parameters& parameters);  // 2 where it says nothing

// Of `wanted`, which ascend: those that make different trees. Where no leader has more to serve
// than the one before allows, the next makes the same tree; `without_root`: the root's children are
// none of it.
std::vector<uint16_t> different_fan_outs(const TierTree& tree, std::span<const uint16_t> wanted,
                                         bool without_root = false);

}  // namespace sennit
