// broadcast_chain.cpp: broadcast and reduce along one chain in fabric order, pipelined by chunks.
//
// The chain starts at the root, runs to the last position and on from position 0; a reduce runs the
// other way, adding one contribution at every hop. With many chunks all links work at once and the
// time tends to M / capacity of the slowest boundary, the bound for one-directional trees. Steps: n
// - 1 for the first chunk, one more per further chunk. On the wire: M into every rank but the root
// and M out of every rank but the last; M over every group boundary, into each group once (the
// root's group twice, where the root is not its first). Scratch: broadcast none; reduce M for what
// arrives (may be the peer's memory), M for the sum.
#include "collectives/common.hpp"

namespace sennit {
namespace {

Program broadcast_program(const TierTree& tree, const Request& request, int p) {
  const int n = tree.ranks(), next = (p + 1) % n, previous = (p + n - 1) % n;
  const Range all = block_range(0, 1);
  ProgramBuilder builder(request.in_place);
  const Operand data = p == request.root ? builder.input({&all, 1}) : builder.output({&all, 1});
  if (p != request.root) builder.recv(previous, data, tree.crossing_tier(p, previous));
  if (next != request.root) builder.send(next, data, tree.crossing_tier(p, next));
  if (p == request.root) copy_own(builder, request, all);
  return builder.finish();
}

Program reduce_program(const TierTree& tree, const Request& request, int p) {
  const int n = tree.ranks(), next = (p + 1) % n, previous = (p + n - 1) % n;
  const Range all = block_range(0, 1);
  ProgramBuilder builder(request.in_place);
  const Operand own = builder.input({&all, 1});
  const bool at_root = p == request.root;
  Operand sum = own;
  if (n == 1) {
    builder.copy(builder.output({&all, 1}), own, true);
  } else if (previous != request.root) {  // all but the chain's first
    const Operand arrived = builder.scratch({&all, 1});
    builder.recv(previous, arrived, tree.crossing_tier(p, previous));
    sum = at_root ? builder.output({&all, 1}) : builder.scratch({&all, 1});
    const Operand sources[] = {arrived, own};
    builder.reduce(sum, sources, at_root);
  }
  if (!at_root) builder.send(next, sum, tree.crossing_tier(p, next));
  return builder.finish();
}

// A broadcast leaves the root; a reduce arrives there. The edge at the other side of the root, from
// this position to the next, is unused.
int unused_edge(const Request& request, int ranks) {
  return request.collective == Collective::broadcast ? (request.root + ranks - 1) % ranks
                                                     : request.root;
}

class ChainAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "chain"; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::broadcast || request.collective == Collective::reduce;
  }
  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters&,
                    const CostModel& cost) const override {
    const int n = tree.ranks();
    const uint64_t total = total_bytes(request, n);
    const int unused = unused_edge(request, n);
    Estimate estimate;
    Load load(tree);
    const auto sent_to_next = [&](int p) {
      return p == unused ? Load::Way{} : Load::Way{.bytes = total, .messages = 1};
    };
    // One edge fewer than children for every group, and for the root the one from the last position
    // to the first; less the one that is not used.
    const size_t without = index(tree.common_group(unused, (unused + 1) % n));
    for (size_t i = 0; i < tree.groups.size(); i++) {
      const Group& g = tree.groups[i];
      if (i > 0)
        load.add_boundary(i, sent_to_next(g.first + g.size - 1),
                          sent_to_next((g.first + n - 1) % n));
      if (g.children > 0)
        add_latency(tree, static_cast<int>(i),
                    index(g.children) - (i == 0 ? 0 : 1) - (i == without ? 1 : 0), total, cost,
                    &estimate);
    }
    load.set_times(cost, &estimate);
    estimate.at_once = true;
    estimate.messages = n > 1 ? 1 : 0;
    if (request.collective == Collective::reduce && n > 1)
      set_readings(2, 2 * static_cast<uint64_t>(n - 1), total, &estimate);
    return estimate;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters&, const CostModel& cost,
                                      const Estimate&) const override {
    const int n = tree.ranks();
    const uint64_t total = total_bytes(request, n);
    const int unused = unused_edge(request, n);
    const GroupRates rates = planning_rates(tree, cost);
    uint64_t path_ns = 0;
    for (int p = 0; p < n; p++)
      if (p != unused) path_ns += message_ns(tree, rates, p, (p + 1) % n, total);
    return {.path_ns = path_ns, .all_messages = static_cast<uint64_t>(n) - 1};
  }

  // A chain has one order.
  bool fixes_order(const Request&, const Parameters&) const override { return true; }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    const bool broadcast = request.collective == Collective::broadcast;
    return make_blueprint([&tree, &request, broadcast](int position) {
      return broadcast ? broadcast_program(tree, request, position)
                       : reduce_program(tree, request, position);
    });
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(ChainAlgorithm)

}  // namespace sennit
