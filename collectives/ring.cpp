// ring.cpp: all-reduce, reduce-scatter and all-gather around one ring in fabric order.
//
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
// (2009). Piece i (a share of the vector, or block i) starts at position i + 1, is added to at
// every hop and is final at position i; all-gather passes the final pieces on in the same
// direction. Everyone sends to the next and receives from the previous at the same time. In fabric
// order the ring leaves and enters each group once. Steps: n - 1 a phase. On the wire: every rank
// and every group boundary (1 - 1/n) M a phase and direction, which is the least possible for a
// rank, and more than a group of several ranks needs. Scratch: M for what arrives (may be the
// peer's memory), and in reduce-scatter M for partial sums.
#include "collectives/common.hpp"

namespace sennit {
namespace {

class Ring {
 public:
  Ring(const TierTree& tree, const Request& request, int position)
      : request_(request),
        n_(tree.ranks()),
        p_(position),
        next_(at(1)),
        previous_(at(-1)),
        next_tier_(tree.crossing_tier(p_, next_)),
        previous_tier_(tree.crossing_tier(p_, previous_)),
        builder_(request.in_place) {}

  Program program() {
    if (n_ == 1) {
      const Range all = block_range(0, 1);
      if (request_.reduces())
        builder_.copy(builder_.output({&all, 1}), builder_.input({&all, 1}), true);
      else
        copy_own(builder_, request_, all);
      return builder_.finish();
    }
    if (request_.reduces()) reduce_scatter();
    if (request_.collective != Collective::reduce_scatter) all_gather();
    return builder_.finish();
  }

 private:
  int at(int offset) const { return ((p_ + offset) % n_ + n_) % n_; }
  Range piece(int i) const {
    const auto begin = static_cast<uint64_t>(i);
    return request_.collective == Collective::all_reduce
               ? share_range(begin, begin + 1, static_cast<uint64_t>(n_))
               : block_range(begin, begin + 1);
  }

  void reduce_scatter() {
    Range going = piece(at(-1));
    Operand partial = builder_.input({&going, 1});
    for (int step = 0; step < n_ - 1; step++) {
      builder_.send(next_, partial, next_tier_);
      const Range coming = piece(at(-2 - step));
      const Operand arrived = builder_.scratch({&coming, 1});
      builder_.recv(previous_, arrived, previous_tier_);
      const bool last = step == n_ - 2;
      const bool to_output = last || request_.collective == Collective::all_reduce;
      partial = to_output ? builder_.output({&coming, 1}) : builder_.scratch({&coming, 1});
      const Operand sources[] = {arrived, builder_.input({&coming, 1})};
      builder_.reduce(partial, sources, last);
    }
  }

  void all_gather() {
    const Range own = piece(p_);
    const bool from_input = request_.collective == Collective::all_gather;
    builder_.send(next_, from_input ? builder_.input({&own, 1}) : builder_.output({&own, 1}),
                  next_tier_);
    if (from_input) copy_own(builder_, request_, own);
    for (int step = 0; step < n_ - 1; step++) {
      const Range piece_range = piece(at(-1 - step));
      const Operand arrived = builder_.output({&piece_range, 1});
      builder_.recv(previous_, arrived, previous_tier_);
      if (step < n_ - 2) builder_.send(next_, arrived, next_tier_);
    }
  }

  const Request& request_;
  const int n_, p_, next_, previous_, next_tier_, previous_tier_;
  ProgramBuilder builder_;
};

// Reduce-scatter, all-gather, or both.
uint64_t phases(const Request& request) {
  return request.collective == Collective::all_reduce ? 2 : 1;
}

class RingAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "ring"; }

  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::all_reduce ||
           request.collective == Collective::reduce_scatter ||
           request.collective == Collective::all_gather;
  }

  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters&,
                    const CostModel& cost) const override {
    const int n = tree.ranks();
    const auto ranks = static_cast<uint64_t>(n);
    const uint64_t total = total_bytes(request, n);
    const bool all_reduce = request.collective == Collective::all_reduce;
    Estimate estimate;
    Load load(tree);
    const auto sent_to_next = [&](int p) -> Load::Way {
      // Reduce-scatter leaves out the sender's own block, all-gather the receiver's.
      const int left_out = request.collective == Collective::all_gather ? (p + 1) % n : p;
      const uint64_t own = all_reduce ? total / ranks : block_bytes(request, left_out);
      return {phases(request) * (total - own), phases(request) * (ranks - 1)};
    };
    for (size_t i = 1; i < tree.groups.size(); i++) {
      const Group& g = tree.groups[i];
      load.add_boundary(i, sent_to_next(g.first + g.size - 1), sent_to_next((g.first + n - 1) % n));
    }
    add_latency_of_neighbours(tree, phases(request), total / ranks, cost, &estimate);
    load.set_times(cost, &estimate);
    estimate.at_once = true;
    estimate.messages = phases(request) * (ranks - 1);
    if (request.reduces()) estimate.reduce_bytes = 2 * scaled(total, ranks - 1, ranks);
    return estimate;
  }

  // Each block begins at a fixed rank; the vector's pieces are cut from a chunk.
  bool fixes_order(const Request& request, const Parameters&) const override {
    return !request.reduces() || request.collective == Collective::reduce_scatter;
  }
  uint64_t turns_around_ring(const Request& request) const override { return phases(request); }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    return make_blueprint(
        [&tree, &request](int position) { return Ring(tree, request, position).program(); });
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(RingAlgorithm)

}  // namespace sennit
