// tree.hpp: the tier tree as the tiered family walks it: one node per exchange stage.
//
// A group whose fan-out exceeds its stage's radix is cut into *virtual* groups, so that an exchange
// among n children becomes several with few messages each. Subtrees that look alike (fan-outs,
// rates, weights of the blocks) share a *shape*, and everything derived from the tree is worked out
// once per shape. Immutable. Memory: O(ranks) nodes, O(distinct shapes) shapes. Time: O(ranks).
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "cost/rates.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::tiered {

// A tier that has groups of so many children.
struct FanOut {
  uint8_t tier = 0;
  int32_t children = 0;
  bool operator==(const FanOut&) const = default;
  bool operator<(const FanOut& other) const {
    return tier != other.tier ? tier < other.tier : children < other.children;
  }
};
std::vector<FanOut> fan_outs(const TierTree& tree);  // each once, ascending

// What a list of radices makes of the tree: how many groups each kind of group is cut into, layer
// by layer.
struct Cuts {
  std::vector<std::vector<int32_t>> layers;
  size_t stages = 0;  // on the deepest way
  bool operator==(const Cuts&) const = default;
};
Cuts cuts(std::span<const FanOut> fan_outs, std::span<const uint16_t> radices);

// A group of the tier tree, or a virtual one that a radix cuts out of it.
struct StageNode {
  int32_t parent = -1;
  int32_t first_child = -1;  // children are consecutive
  int32_t children = 0;      // 0: a rank
  int32_t first = 0;         // first position
  int32_t size = 1;
  int32_t group = -1;  // the tier tree's group; -1: virtual
  // the innermost group that holds it: `group`, or the one that a virtual node cuts up
  int32_t real = 0;
  int32_t depth = 0;  // stages above it
  uint32_t shape = 0;
};

// What all subtrees that are alike have in common.
struct Shape {
  uint32_t size = 1;
  uint32_t fanout = 0;
  // (shape, how many of it in a row), in fabric order
  std::vector<std::pair<uint32_t, uint32_t>> children;
  // bytes/s in the direction of all-gather; 0: no limit (virtual groups, the root)
  uint64_t out_rate = 0;
  uint64_t in_rate = 0;
  uint64_t weight = 0;  // elements of all blocks that its ranks own
  uint32_t blocks = 0;  // how many of its ranks own a block
  int tier = -1;        // of the tier tree; -1: virtual
};

// The tier tree with the groups that radices cut out of it. Immutable.
class StageTree {
 public:
  // Weights are those of all-gather's blocks: one per rank; broadcast and reduce: the root's alone.
  // `rates` are in the direction of all-gather.
  StageTree(const TierTree& tree, const Request& request, std::span<const uint16_t> radices,
            const GroupRates& rates);

  std::span<const StageNode> nodes() const { return nodes_; }
  const StageNode& node(int number) const { return nodes_[index(number)]; }
  // children before parents; the root's is last
  std::span<const Shape> shapes() const { return shapes_; }
  const Shape& shape(uint32_t index) const { return shapes_[index]; }
  int leaf(int position) const { return leaf_of_position_[index(position)]; }
  bool weighted() const { return weighted_; }  // blocks differ in size

 private:
  void make_nodes(const TierTree& tree, std::span<const uint16_t> radices);
  void add_up_sizes();
  void make_shapes(const TierTree& tree, const Request& request, const GroupRates& rates);

  std::vector<StageNode> nodes_;
  std::vector<Shape> shapes_;
  std::vector<int32_t> leaf_of_position_;
  bool weighted_ = false;
};

}  // namespace sennit::tiered
