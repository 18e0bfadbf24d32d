// double_tree.cpp: all-reduce, broadcast and reduce over two binary trees, half of the data on
// each.
//
// Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"
// (2009). Both trees are in-order over positions; in the first the odd positions are inner, in the
// second the even ones, so no rank is inner in both and every rank sends and receives about the
// same. In order means subtrees are runs of positions: sums are in fabric order, and a group
// boundary is crossed O(log n) times. Broadcast and reduce span all ranks but the root, which is
// tied to the roots of both trees. Any number of ranks. Steps: about 2 log2 n (all-reduce),
// pipelined by chunks. On the wire per rank and direction: 3/2 M for an inner rank in one tree plus
// M/2 as a leaf in the other, 2 M in all (broadcast, reduce: M); per boundary M/2 per edge that
// crosses it. Scratch: M/2 per child (may be the child's memory); reduce M/2 for sums.
#include <algorithm>
#include <array>

#include "collectives/common.hpp"

namespace sennit {
namespace {

// An in-order binary tree over 0 ... n-1; inner nodes are odd, or even when `shifted`.
struct BinaryTree {
  struct Node {
    int parent = -1;
    int left = -1, right = -1;
  };
  int root = -1;
  std::vector<Node> nodes;

  BinaryTree(int n, bool shifted) : nodes(index(n)) {
    // Shifted: the tree over one more node in front, which is a leaf and is left out.
    const int shift = shifted ? 1 : 0;
    root = build(0, (n + shift) / 2, shift);
  }

 private:
  // Inner nodes number [begin, end): number k is node 2k + 1, between the leaves 2k and 2k + 2.
  int build(int begin, int end, int shift) {
    if (begin == end) {
      const int leaf = 2 * begin - shift;
      return leaf >= 0 && leaf < static_cast<int>(nodes.size()) ? leaf : -1;
    }
    const int middle = (begin + end) / 2, self = 2 * middle + 1 - shift;
    const int left = build(begin, middle, shift), right = build(middle + 1, end, shift);
    Node& node = nodes[index(self)];
    node.left = left;
    node.right = right;
    for (const int child : {left, right})
      if (child >= 0) nodes[index(child)].parent = self;
    return self;
  }
};

class DoubleTree {
 public:
  DoubleTree(const TierTree& tree, const Request& request)
      : tree_(tree),
        request_(request),
        n_(tree.ranks()),
        rooted_(request.collective != Collective::all_reduce),
        trees_{BinaryTree(rooted_ ? n_ - 1 : n_, false), BinaryTree(rooted_ ? n_ - 1 : n_, true)} {}

  Program program(int p) const {
    ProgramBuilder builder(request_.in_place);
    if (n_ == 1) {
      const Range all = block_range(0, 1);
      if (request_.reduces())
        builder.copy(builder.output({&all, 1}), builder.input({&all, 1}), true);
      else
        copy_own(builder, request_, all);
      return builder.finish();
    }
    for (size_t half = 0; half < 2; half++)
      if (request_.reduces()) reduce(builder, half, p);
    for (size_t half = 0; half < 2; half++)
      if (request_.collective != Collective::reduce) broadcast(builder, half, p);
    if (request_.collective == Collective::broadcast && p == request_.root)
      copy_own(builder, request_, block_range(0, 1));
    return builder.finish();
  }

  struct Neighbours {  // in one of the trees, as positions; -1: none
    int parent = -1, left = -1, right = -1;
  };
  Neighbours neighbours(size_t half, int p) const {
    const BinaryTree& tree = trees_[half];
    if (!rooted_) {
      const BinaryTree::Node& node = tree.nodes[index(p)];
      return {node.parent, node.left, node.right};
    }
    if (p == request_.root) return {-1, position(tree.root), -1};
    const BinaryTree::Node& node = tree.nodes[index(p < request_.root ? p : p - 1)];
    return {node.parent < 0 ? request_.root : position(node.parent), position(node.left),
            position(node.right)};
  }

 private:
  int position(int node) const { return rooted_ && node >= request_.root ? node + 1 : node; }

  void reduce(ProgramBuilder& builder, size_t half, int p) const {
    const Range range = share_range(half, half + 1, 2);
    const Neighbours at = neighbours(half, p);
    const Operand own = builder.input({&range, 1});
    const auto arrive = [&](int child) {
      const Operand arrived = builder.scratch({&range, 1});
      builder.recv(child, arrived, tree_.crossing_tier(p, child));
      return arrived;
    };
    std::vector<Operand> sources;  // in fabric order
    if (at.left >= 0) sources.push_back(arrive(at.left));
    sources.push_back(own);
    if (at.right >= 0) sources.push_back(arrive(at.right));
    Operand sum = own;
    if (at.parent < 0 || sources.size() > 1) {
      const bool to_output = !rooted_ || p == request_.root;
      sum = to_output ? builder.output({&range, 1}) : builder.scratch({&range, 1});
      combine(builder, sum, sources, at.parent < 0);
    }
    if (at.parent >= 0) builder.send(at.parent, sum, tree_.crossing_tier(p, at.parent));
  }

  void broadcast(ProgramBuilder& builder, size_t half, int p) const {
    const Range range = share_range(half, half + 1, 2);
    const Neighbours at = neighbours(half, p);
    const bool from_input = rooted_ && p == request_.root;
    const Operand data = from_input ? builder.input({&range, 1}) : builder.output({&range, 1});
    if (at.parent >= 0) builder.recv(at.parent, data, tree_.crossing_tier(p, at.parent));
    for (const int child : {at.left, at.right})
      if (child >= 0) builder.send(child, data, tree_.crossing_tier(p, child));
  }

  const TierTree& tree_;
  const Request& request_;
  const int n_;
  const bool rooted_;
  const std::array<BinaryTree, 2> trees_;
};

// Of both trees, which are balanced.
uint64_t depth_of(int ranks) {
  uint64_t depth = 1;
  while ((uint64_t{1} << depth) < static_cast<uint64_t>(ranks)) depth++;
  return depth;
}

class DoubleTreeAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "double_tree"; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::all_reduce ||
           request.collective == Collective::broadcast || request.collective == Collective::reduce;
  }
  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters&,
                    const CostModel& cost) const override {
    const int n = tree.ranks();
    const uint64_t half_bytes = total_bytes(request, n) / 2;
    const bool up = request.reduces(), down = request.collective != Collective::reduce;
    Estimate estimate;
    Load load(tree);
    if (n > 1) {
      const DoubleTree trees(tree, request);
      for (size_t half = 0; half < 2; half++)
        for (int p = 0; p < n; p++) {
          const int parent = trees.neighbours(half, p).parent;
          if (parent < 0) continue;
          const int group = tree.common_group(p, parent);
          if (up) load.add_within(group, p, parent, half_bytes);
          if (down) load.add_within(group, parent, p, half_bytes);
        }
      const uint64_t depth = depth_of(n);
      // Where one rank has or wants the vector, that is a message from or to the trees' roots.
      add_latency(tree, slowest_group(tree, cost), up && down ? 2 * depth : depth + 1, half_bytes,
                  cost, &estimate);
      estimate.messages = up && down ? 4 : (down ? 2 : 1) + 1;
      // By a leaf of one tree that is next to the root of the other.
      estimate.held_percent = static_cast<uint8_t>(100 * (depth - 1) / (depth + 1));
    }
    load.set_times(cost, &estimate);
    estimate.at_once = true;
    // Of a half a rank adds up its own and two children's. Who alone wants the vector is one rank
    // more on the way, and adds its own to what comes from the roots of both trees.
    const auto sources = static_cast<uint64_t>(std::min(n, 3));
    if (up && down)
      set_readings(sources, sources * depth_of(n), half_bytes, &estimate);
    else if (up)
      set_readings(4, 3 * depth_of(n) + 4, half_bytes, &estimate);
    return estimate;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters&, const CostModel& cost,
                                      const Estimate&) const override {
    const int n = tree.ranks();
    if (n == 1) return {};
    const uint64_t half_bytes = total_bytes(request, n) / 2;
    const uint64_t ways = request.collective == Collective::all_reduce ? 2 : 1;
    // A half goes to two children. Every boundary is on some rank's way, the narrowest too.
    const uint64_t path_ns =
        ways * depth_of(n) * transfer_ns(2 * half_bytes, narrowest_rate(tree, cost));
    return {.path_ns = path_ns, .all_messages = 2 * ways * (static_cast<uint64_t>(n) - 1)};
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    const auto common = std::make_shared<const DoubleTree>(tree, request);
    return make_blueprint([common](int position) { return common->program(position); });
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(DoubleTreeAlgorithm)

}  // namespace sennit
