// gather_scatter.cpp: gather and scatter over a tree that follows the fabric, so that the root
// posts few messages.
//
// The tree is FabricTree's: every subtree is a run of positions, so each message is one range of
// blocks. A gather collects its subtree's blocks in scratch and hands them on in one message; a
// scatter is the reverse. For small blocks and many ranks: the root handles fan-out x depth
// messages instead of n - 1. Parameters: radices[0] is the fan-out (default 2). Steps: the tree's
// depth. On the wire: every boundary carries each block behind it once, the minimum; inner ranks
// relay their subtree's blocks. Scratch: the subtree's blocks on inner ranks other than the root.
// Needs the counts of all blocks on every rank.
#include <algorithm>

#include "collectives/common.hpp"
#include "collectives/fabric_tree.hpp"

namespace sennit {
namespace {

constexpr uint16_t kGatherFanOuts[] = {2, 4, 8, 16, 64};

Range subtree(const FabricTree& shape, int position) {
  const FabricTree::Node& node = shape.node(position);
  return block_range(static_cast<uint64_t>(node.begin), static_cast<uint64_t>(node.end));
}

Program gather_program(const TierTree& tree, const Request& request, const FabricTree& shape,
                       int p) {
  ProgramBuilder builder(request.in_place);
  const FabricTree::Node& node = shape.node(p);
  const auto self = static_cast<uint64_t>(p);
  const Range all = subtree(shape, p), own = block_range(self, self + 1);
  const bool at_root = p == request.root;
  if (node.children == 0 && !at_root) {
    builder.send(node.parent, builder.input({&own, 1}), tree.crossing_tier(p, node.parent));
    return builder.finish();
  }
  const Operand collected = at_root ? Operand{} : builder.scratch({&all, 1});
  for (const int child : shape.children(p)) {
    const Range blocks = subtree(shape, child);
    builder.recv(child,
                 at_root ? builder.output({&blocks, 1}) : builder.part(collected, {&blocks, 1}),
                 tree.crossing_tier(p, child));
  }
  if (at_root) {
    copy_own(builder, request, own);
  } else {
    builder.copy(builder.part(collected, {&own, 1}), builder.input({&own, 1}));
    builder.send(node.parent, collected, tree.crossing_tier(p, node.parent));
  }
  return builder.finish();
}

Program scatter_program(const TierTree& tree, const Request& request, const FabricTree& shape,
                        int p) {
  ProgramBuilder builder(request.in_place);
  const FabricTree::Node& node = shape.node(p);
  const auto self = static_cast<uint64_t>(p);
  const Range all = subtree(shape, p), own = block_range(self, self + 1);
  const bool at_root = p == request.root;
  if (node.children == 0 && !at_root) {
    builder.recv(node.parent, builder.output({&own, 1}), tree.crossing_tier(p, node.parent));
    return builder.finish();
  }
  const Operand arrived = at_root ? Operand{} : builder.scratch({&all, 1});
  if (!at_root) builder.recv(node.parent, arrived, tree.crossing_tier(p, node.parent));
  for (const int child : shape.children(p)) {
    const Range blocks = subtree(shape, child);
    builder.send(child, at_root ? builder.input({&blocks, 1}) : builder.part(arrived, {&blocks, 1}),
                 tree.crossing_tier(p, child));
  }
  if (at_root)
    copy_own(builder, request, own);
  else
    builder.copy(builder.output({&own, 1}), builder.part(arrived, {&own, 1}));
  return builder.finish();
}

class GatherScatterAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "gather_scatter"; }
  Takes takes(Collective) const override { return {.radices = 1}; }
  bool applies(const TierTree&, const Request& request) const override {
    return (request.collective == Collective::gather ||
            request.collective == Collective::scatter) &&
           knows_counts(request);
  }
  std::vector<Parameters> candidates(const TierTree& tree, const Request&) const override {
    std::vector<Parameters> all;
    for (const uint16_t k : different_fan_outs(tree, kGatherFanOuts))
      all.emplace_back().radices = {k};
    return all;
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters& parameters,
                    const CostModel& cost) const override {
    const FabricTree shape(tree, request.root, fan_out(parameters));
    const std::vector<uint64_t> offsets = block_offsets(request, tree.ranks());
    const bool gather = request.collective == Collective::gather;
    Estimate estimate;
    Load load(tree);
    std::vector<uint64_t> reached_ns(index(tree.ranks()), 0);
    for (const int p : shape.top_down()) {
      const FabricTree::Node& node = shape.node(p);
      if (node.parent < 0) continue;
      const uint64_t bytes = offsets[index(node.end)] - offsets[index(node.begin)];
      load.add_within(node.group, gather ? p : node.parent, gather ? node.parent : p, bytes);
      reached_ns[index(p)] =
          reached_ns[index(node.parent)] + planning_latency_ns(tree, node.group, cost);
    }
    load.set_times(cost, &estimate);
    estimate.at_once = true;
    shape.climb(farthest(reached_ns), [&](int p) {
      const FabricTree::Node& node = shape.node(p);
      add_latency(tree, node.group, 1, offsets[index(node.end)] - offsets[index(node.begin)], cost,
                  &estimate);
    });
    const auto most = static_cast<uint64_t>(shape.most_children());
    estimate.messages = gather ? std::min<uint64_t>(most, 1) : most;
    return estimate;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters& parameters, const CostModel& cost,
                                      const Estimate&) const override {
    const FabricTree shape(tree, request.root, fan_out(parameters));
    const std::vector<uint64_t> offsets = block_offsets(request, tree.ranks());
    const bool gather = request.collective == Collective::gather;
    const GroupRates rates = shape.to_leaders(tree, planning_rates(tree, cost));
    // The whole message, hop after hop. Messages of one parent share its link until the smaller
    // ones are through.
    std::vector<uint64_t> moved_ns(index(tree.ranks()), 0);
    for (const int p : shape.top_down()) {
      const auto bytes_of = [&](int child) {
        return offsets[index(shape.node(child).end)] - offsets[index(shape.node(child).begin)];
      };
      std::vector<int> children(shape.children(p).begin(), shape.children(p).end());
      std::ranges::sort(children, {}, bytes_of);
      uint64_t through = 0, left = children.size();
      for (const int child : children) {
        const uint64_t shared = through + left * bytes_of(child);
        moved_ns[index(child)] =
            moved_ns[index(p)] +
            (gather ? shape.up_ns(child, rates, shared) : shape.down_ns(child, rates, shared));
        through += bytes_of(child);
        left--;
      }
    }
    return {.path_ns = *std::ranges::max_element(moved_ns),
            .received = gather ? static_cast<uint64_t>(shape.most_children()) : 0,
            .all_messages = static_cast<uint64_t>(tree.ranks()) - 1};
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters& parameters) const override {
    const auto shape = std::make_shared<const FabricTree>(tree, request.root, fan_out(parameters));
    const bool gather = request.collective == Collective::gather;
    return make_blueprint([&tree, &request, shape, gather](int position) {
      return gather ? gather_program(tree, request, *shape, position)
                    : scatter_program(tree, request, *shape, position);
    });
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(GatherScatterAlgorithm)

}  // namespace sennit
