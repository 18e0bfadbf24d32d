// broadcast_scatter_gather.cpp: broadcast as scatter and all-gather, for large messages without
// many chunks.
//
// Barnett et al. and van de Geijn (1994): the root scatters shares of the vector, then the ranks
// gather them from one another. Share i belongs to position i. The scatter runs down FabricTree,
// whose leaders keep the shares they pass on. The all-gather is a ring in fabric order, closed
// within every group: a share passes from neighbour to neighbour, but the first rank of a group
// gets what its own group holds from within it. So no share enters a group twice, on trees of any
// shape: with the scatter, every group that does not hold the root takes in M, the minimum. Shares
// that a rank holds since the scatter are not sent to it again. Steps: the tree's depth, then at
// most n - 1. On the wire: at most M into and about 2 M out of a rank. Scratch: none.
#include <algorithm>

#include "collectives/common.hpp"
#include "collectives/fabric_tree.hpp"

namespace sennit {
namespace {

constexpr int kFanOut = 2;

class ScatterGather {
 public:
  ScatterGather(const TierTree& tree, const Request& request)
      : tree_(tree), request_(request), n_(tree.ranks()), shape_(tree, request.root, kFanOut) {}

  Program program(int p) const {
    ProgramBuilder builder(request_.in_place);
    const auto held = [&](int begin, int end) {
      const Range range = shares(begin, end);
      return p == request_.root ? builder.input({&range, 1}) : builder.output({&range, 1});
    };
    const FabricTree::Node& node = shape_.node(p);
    if (p != request_.root)
      builder.recv(node.parent, held(node.begin, node.end), tree_.crossing_tier(p, node.parent));
    for (const int child : shape_.children(p))
      builder.send(child, held(shape_.node(child).begin, shape_.node(child).end),
                   tree_.crossing_tier(p, child));

    // Nearest shares first, on both sides alike.
    for (int distance = 1; distance < n_; distance++)
      if (const int share = (p - distance + n_) % n_; !holds(p, share)) {
        const int from = sender(share, p);
        builder.recv(from, held(share, share + 1), tree_.crossing_tier(p, from));
      }
    for (const int to : receivers(p))
      for (int distance = 1; distance < n_; distance++)
        if (const int share = (to - distance + n_) % n_;
            !holds(to, share) && sender(share, to) == p)
          builder.send(to, held(share, share + 1), tree_.crossing_tier(p, to));
    if (p == request_.root) copy_own(builder, request_, block_range(0, 1));
    return builder.finish();
  }

  const FabricTree& shape() const { return shape_; }

 private:
  Range shares(int begin, int end) const {
    return share_range(static_cast<uint64_t>(begin), static_cast<uint64_t>(end),
                       static_cast<uint64_t>(n_));
  }
  bool holds(int position, int share) const {  // since the scatter
    const FabricTree::Node& node = shape_.node(position);
    return share >= node.begin && share < node.end;
  }
  const Group& group(int number) const { return tree_.groups[index(number)]; }
  static int last(const Group& g) { return g.first + g.size - 1; }

  // Who hands `share` to `position` in the all-gather.
  int sender(int share, int position) const {
    const Group& common = group(tree_.common_group(share, position));
    const int child = tree_.child_at(tree_.common_group(share, position), position);
    if (group(child).first != position) return position - 1;
    const int previous =
        child > common.first_child ? child - 1 : common.first_child + common.children - 1;
    return last(group(previous));
  }

  // To whom a position may hand shares: the first rank of the next group, for every group that it
  // ends.
  std::vector<int> receivers(int position) const {
    std::vector<int> all;
    for (int g = tree_.leaf_of_position[index(position)];
         group(g).parent >= 0 && last(group(g)) == position; g = group(g).parent) {
      const Group& parent = group(group(g).parent);
      const int next = g + 1 < parent.first_child + parent.children ? g + 1 : parent.first_child;
      all.push_back(group(next).first);
    }
    return all;
  }

  const TierTree& tree_;
  const Request& request_;
  const int n_;
  const FabricTree shape_;
};

class ScatterGatherAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "scatter_gather"; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::broadcast;
  }
  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters&,
                    const CostModel& cost) const override {
    const int n = tree.ranks();
    const auto ranks = static_cast<uint64_t>(n);
    const uint64_t total = total_bytes(request, n);
    const FabricTree shape(tree, request.root, kFanOut);
    Estimate estimate;
    Load load(tree);
    std::vector<uint64_t> reached_ns(index(n), 0);
    for (const int p : shape.top_down()) {
      const FabricTree::Node& node = shape.node(p);
      if (node.parent < 0) continue;
      load.add_within(node.group, node.parent, p,
                      scaled(total, static_cast<uint64_t>(node.end - node.begin), ranks));
      reached_ns[index(p)] =
          reached_ns[index(node.parent)] + planning_latency_ns(tree, node.group, cost);
    }
    // All-gather: into each child of a group what the rest of the group holds and, but for the
    // first child, which gets it from outside the group, what lies outside; less what it holds
    // since the scatter.
    for (const Group& g : tree.groups)
      for (int32_t c = 0; c < g.children; c++) {
        const Group& child = tree.groups[index(g.first_child) + index(c)];
        const int previous = g.first_child + (c + g.children - 1) % g.children;
        const Group& before = tree.groups[index(previous)];
        const FabricTree::Node& held = shape.node(child.first);
        const auto missing = [&](int begin, int end) {
          return end - begin - std::max(0, std::min(end, held.end) - std::max(begin, held.begin));
        };
        const int wanted = c == 0 ? missing(g.first, g.first + g.size) : missing(0, n);
        const int shares = wanted - missing(child.first, child.first + child.size);
        load.add_within(child.parent, before.first + before.size - 1, child.first,
                        scaled(total, static_cast<uint64_t>(shares), ranks),
                        static_cast<uint64_t>(shares));
      }
    load.set_times(cost, &estimate);
    shape.climb(farthest(reached_ns), [&](int p) {
      const FabricTree::Node& node = shape.node(p);
      add_latency(tree, node.group, 1,
                  scaled(total, static_cast<uint64_t>(node.end - node.begin), ranks), cost,
                  &estimate);
    });
    add_latency_of_neighbours(tree, 1, total / ranks, cost, &estimate);
    estimate.messages = ranks - 1 + static_cast<uint64_t>(shape.most_children());
    return estimate;
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    const auto common = std::make_shared<const ScatterGather>(tree, request);
    return make_blueprint([common](int position) { return common->program(position); });
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(ScatterGatherAlgorithm)

}  // namespace sennit
