// broadcast_tree.cpp: broadcast and reduce over a tree that follows the fabric, pipelined by
// chunks.
//
// The tree is FabricTree's: per group a tree of fan-out k between its children's leaders, so the
// message enters every group once. For latency: depth is the sum over tiers of log_k(children),
// against n - 1 of the chain; a leader pays for it by sending up to k copies per tier. A reduce
// adds the children and the rank itself by position, that is, in fabric order whatever the root.
// Parameters: radices[0] is k (default 2). On the wire: M into every group and rank but the root's;
// k M a tier out of a leader. Scratch: broadcast none; reduce M per child (may be the child's
// memory) and M for the sum.
#include <algorithm>

#include "collectives/common.hpp"
#include "collectives/fabric_tree.hpp"

namespace sennit {
namespace {

Program broadcast_program(const TierTree& tree, const Request& request, const FabricTree& shape,
                          int p) {
  const Range all = block_range(0, 1);
  ProgramBuilder builder(request.in_place);
  const bool at_root = p == request.root;
  const Operand data = at_root ? builder.input({&all, 1}) : builder.output({&all, 1});
  const int parent = shape.node(p).parent;
  if (!at_root) builder.recv(parent, data, tree.crossing_tier(p, parent));
  for (const int child : shape.children(p)) builder.send(child, data, tree.crossing_tier(p, child));
  if (at_root) copy_own(builder, request, all);
  return builder.finish();
}

Program reduce_program(const TierTree& tree, const Request& request, const FabricTree& shape,
                       int p) {
  const Range all = block_range(0, 1);
  ProgramBuilder builder(request.in_place);
  // by first position
  std::vector<std::pair<int, Operand>> parts = {{p, builder.input({&all, 1})}};
  for (const int child : shape.children(p)) {
    const Operand arrived = builder.scratch({&all, 1});
    builder.recv(child, arrived, tree.crossing_tier(p, child));
    parts.emplace_back(child, arrived);
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Operand> sources;
  sources.reserve(parts.size());
  for (const auto& part : parts) sources.push_back(part.second);
  const int parent = shape.node(p).parent;
  if (p == request.root) {
    combine(builder, builder.output({&all, 1}), sources, true);
  } else {
    Operand sum = sources[0];
    if (sources.size() > 1) {
      sum = builder.scratch({&all, 1});
      builder.reduce(sum, sources, false);
    }
    builder.send(parent, sum, tree.crossing_tier(p, parent));
  }
  return builder.finish();
}

class TreeBlueprint : public Blueprint {
 public:
  TreeBlueprint(const TierTree& tree, const Request& request, int fan_out)
      : tree_(tree), request_(request), shape_(tree, request.root, fan_out) {}

  Program program(int position) const override {
    return request_.collective == Collective::broadcast
               ? broadcast_program(tree_, request_, shape_, position)
               : reduce_program(tree_, request_, shape_, position);
  }
  std::vector<uint32_t> kinds() const override { return shape_.kinds(tree_); }

 private:
  const TierTree& tree_;
  const Request& request_;
  const FabricTree shape_;
};

class TreeAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "tree"; }
  Takes takes(Collective) const override { return {.radices = 1}; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::broadcast || request.collective == Collective::reduce;
  }
  std::vector<Parameters> candidates(const TierTree& tree, const Request&) const override {
    std::vector<Parameters> all;
    for (const uint16_t k : different_fan_outs(tree, kFanOuts)) all.emplace_back().radices = {k};
    return all;
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters& parameters,
                    const CostModel& cost) const override {
    const FabricTree shape(tree, request.root, fan_out(parameters));
    const uint64_t total = total_bytes(request, tree.ranks());
    const bool broadcast = request.collective == Collective::broadcast;
    Estimate estimate;
    Load load(tree);
    // By rank: what is read on the way from it to the root, in messages.
    std::vector<uint64_t> reached_ns(index(tree.ranks()), 0), read = reached_ns;
    for (const int p : shape.top_down()) {
      const int parent = shape.node(p).parent, group = shape.node(p).group;
      if (parent < 0) continue;
      read[index(p)] = read[index(parent)] + static_cast<uint64_t>(shape.node(parent).children) + 1;
      load.add_within(group, broadcast ? parent : p, broadcast ? p : parent, total);
      reached_ns[index(p)] = reached_ns[index(parent)] + planning_latency_ns(tree, group, cost);
    }
    const auto most = static_cast<uint64_t>(shape.most_children());
    load.set_times(cost, &estimate);
    estimate.at_once = true;
    shape.climb(farthest(reached_ns),
                [&](int p) { add_latency(tree, shape.node(p).group, 1, total, cost, &estimate); });
    estimate.messages = broadcast ? most : std::min<uint64_t>(most, 1);
    if (!broadcast && most > 0)
      set_readings(most + 1, *std::ranges::max_element(read), total, &estimate);
    return estimate;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters& parameters, const CostModel& cost,
                                      const Estimate&) const override {
    const FabricTree shape(tree, request.root, fan_out(parameters));
    const uint64_t total = total_bytes(request, tree.ranks());
    const GroupRates rates = shape.to_leaders(tree, planning_rates(tree, cost));
    // The whole message, to all children one after the other.
    std::vector<uint64_t> moved_ns(index(tree.ranks()), 0);
    for (const int p : shape.top_down()) {
      const int parent = shape.node(p).parent;
      if (parent < 0) continue;
      moved_ns[index(p)] =
          moved_ns[index(parent)] + shape.node(parent).children * shape.down_ns(p, rates, total);
    }
    const bool reduces = request.collective == Collective::reduce;
    return {.path_ns = *std::ranges::max_element(moved_ns),
            .received = reduces ? static_cast<uint64_t>(shape.most_children()) : 0,
            .all_messages = static_cast<uint64_t>(tree.ranks()) - 1};
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters& parameters) const override {
    return std::make_unique<TreeBlueprint>(tree, request, fan_out(parameters));
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(TreeAlgorithm)

}  // namespace sennit
