// direct.cpp: every collective in one round: whoever has data sends it straight to whoever needs
// it.
//
// Steps: 1 (barrier: log2 n). Peers are visited in the order of collectives/visits.hpp. All-to-all
// is the pairwise exchange; barrier is dissemination (Hensgen, Finkel, Manber 1988): in round k
// everyone tells p + 2^k what it knows.
// On the wire: all-to-all, all-gather and reduce-scatter the least a rank can send, but a block
// crosses a group boundary once per rank behind it; all-reduce sends whole vectors to everyone. So
// this is for few ranks or small messages, except all-to-all, where no schedule moves less.
// Scratch: what is reduced, once per peer (may be the peer's memory); all-to-all in place: a copy
// of the input.
#include "collectives/common.hpp"
#include "collectives/visits.hpp"

namespace sennit {
namespace {

class Direct {
 public:
  Direct(const TierTree& tree, const Request& request, const Visits& visits, int position)
      : tree_(tree),
        request_(request),
        visits_(visits),
        n_(tree.ranks()),
        p_(position),
        builder_(request.in_place) {}

  Program program() {
    switch (request_.collective) {
      case Collective::all_reduce:
        all_reduce();
        break;
      case Collective::reduce_scatter:
        reduce_scatter();
        break;
      case Collective::all_gather:
        all_gather();
        break;
      case Collective::broadcast:
      case Collective::scatter:
        from_root();
        break;
      case Collective::reduce:
        reduce();
        break;
      case Collective::gather:
        gather();
        break;
      case Collective::all_to_all:
        all_to_all();
        break;
      case Collective::barrier:
        barrier();
        break;
      case Collective::send_recv:
        break;
    }
    return builder_.finish();
  }

 private:
  int to(int turn) const { return visits_.to(p_, turn); }
  int from(int turn) const { return visits_.from(p_, turn); }
  static Range block(uint64_t i) { return block_range(i, i + 1); }
  Operand input(Range range) { return builder_.input({&range, 1}); }
  Operand output(Range range) { return builder_.output({&range, 1}); }
  Operand scratch(Range range) { return builder_.scratch({&range, 1}); }
  void send(int peer, Operand source) {
    builder_.send(peer, source, tree_.crossing_tier(p_, peer));
  }
  void recv(int peer, Operand target) {
    builder_.recv(peer, target, tree_.crossing_tier(p_, peer));
  }

  // Receives everyone's contribution to `range`; in fabric order, one's own from the input.
  std::vector<Operand> contributions(Range range) {
    std::vector<Operand> all(index(n_));
    for (int i = 1; i < n_; i++) {
      Operand& slot = all[index(from(i))];
      slot = scratch(range);
      recv(from(i), slot);
    }
    all[index(p_)] = input(range);
    return all;
  }

  void all_reduce() {
    const Range all = block(0);
    for (int i = 1; i < n_; i++) send(to(i), input(all));
    const std::vector<Operand> sources = contributions(all);
    if (!request_.in_place || n_ == 1) return combine(builder_, output(all), sources, true);
    // In place the sum must not wait for the sends to end: peers may hold on to them until their
    // own sums are done.
    const Operand sum = scratch(all);
    combine(builder_, sum, sources, true);
    builder_.copy(output(all), sum);
  }

  void reduce_scatter() {
    for (int i = 1; i < n_; i++) send(to(i), input(block(to(i))));
    combine(builder_, output(block(p_)), contributions(block(p_)), true);
  }

  void all_gather() {
    for (int i = 1; i < n_; i++) {
      send(to(i), input(block(p_)));
      recv(from(i), output(block(from(i))));
    }
    copy_own(builder_, request_, block(p_));
  }

  void from_root() {
    const bool broadcast = request_.collective == Collective::broadcast;
    const Range own = block(broadcast ? 0 : p_);
    if (p_ != request_.root) return recv(request_.root, output(own));
    for (int i = 1; i < n_; i++) send(to(i), input(broadcast ? own : block(to(i))));
    copy_own(builder_, request_, own);
  }

  void reduce() {
    if (p_ != request_.root) return send(request_.root, input(block(0)));
    combine(builder_, output(block(0)), contributions(block(0)), true);
  }

  void gather() {
    if (p_ != request_.root) return send(request_.root, input(block(p_)));
    for (int i = 1; i < n_; i++) recv(from(i), output(block(from(i))));
    copy_own(builder_, request_, block(p_));
  }

  void all_to_all() {
    std::vector<Operand> going(index(n_));
    for (int i = 1; i < n_; i++) {
      going[index(i)] = input(block(to(i)));
      if (!request_.in_place) continue;
      const Operand copied = scratch(block(uint64_t{1} * p_ * n_ + to(i)));
      builder_.copy(copied, going[index(i)]);
      going[index(i)] = copied;
    }
    for (int i = 1; i < n_; i++) {
      send(to(i), going[index(i)]);
      recv(from(i), output(block(from(i))));
    }
    copy_own(builder_, request_, block(p_));
  }

  void barrier() {
    Operand known = input(block(0));
    for (int distance = 1; distance < n_; distance *= 2) {
      const int next = (p_ + distance) % n_, before = (p_ - distance + n_) % n_;
      builder_.send(next, known, tree_.crossing_tier(p_, next), true);
      const Operand news = scratch(block(0));
      builder_.recv(before, news, tree_.crossing_tier(p_, before), true);
      const Operand sources[] = {known, news};
      known = scratch(block(0));
      builder_.reduce(known, sources, false);
    }
  }

  const TierTree& tree_;
  const Request& request_;
  const Visits& visits_;
  const int n_, p_;
  ProgramBuilder builder_;
};

// What crosses each boundary.
Load load_of(const TierTree& tree, const Request& request) {
  const auto ranks = static_cast<uint64_t>(tree.ranks());
  const std::vector<uint64_t> offsets = block_offsets(request, tree.ranks());
  const uint64_t total = total_bytes(request, tree.ranks());
  Load load(tree);
  for (size_t i = 1; i < tree.groups.size(); i++) {
    const Group& g = tree.groups[i];
    const auto inside = static_cast<uint64_t>(g.size), outside = ranks - inside;
    const auto first = index(g.first);
    const uint64_t inside_bytes = offsets[first + inside] - offsets[first];
    const bool has_root = request.root >= g.first && request.root < g.first + g.size;
    const uint64_t pairs = inside * outside;
    // From the root to all others; gather and reduce the other way.
    const auto rooted = [&](uint64_t out_bytes, uint64_t in_bytes) {
      Load::Way down{has_root ? out_bytes : 0, has_root ? outside : 0};
      Load::Way up{has_root ? 0 : in_bytes, has_root ? 0 : inside};
      if (request.collective == Collective::gather || request.collective == Collective::reduce)
        std::swap(down, up);
      load.add_boundary(i, down, up);
    };
    switch (request.collective) {
      case Collective::all_reduce:
        load.add_boundary(i, {Wide{pairs} * total, pairs}, {Wide{pairs} * total, pairs});
        break;
      case Collective::all_to_all:
        load.add_boundary(i, {pairs * block_bytes(request, 0), pairs},
                          {pairs * block_bytes(request, 0), pairs});
        break;
      case Collective::all_gather:
        load.add_boundary(i, {inside_bytes * outside, pairs},
                          {(total - inside_bytes) * inside, pairs});
        break;
      case Collective::reduce_scatter:
        load.add_boundary(i, {(total - inside_bytes) * inside, pairs},
                          {inside_bytes * outside, pairs});
        break;
      case Collective::broadcast:
      case Collective::reduce:
        rooted(outside * total, inside * total);
        break;
      case Collective::scatter:
      case Collective::gather:
        rooted(total - inside_bytes, inside_bytes);
        break;
      case Collective::barrier:
      case Collective::send_recv:
        break;
    }
  }
  return load;
}

// Of the whole vector, or of the largest block.
uint64_t largest_message(const Request& request, int ranks) {
  if (request.collective == Collective::barrier) return 0;
  if (request.collective == Collective::all_reduce || request.collective == Collective::broadcast ||
      request.collective == Collective::reduce)
    return total_bytes(request, ranks);
  uint64_t largest = 0;
  for (int i = 0; i < ranks; i++) largest = std::max(largest, block_bytes(request, i));
  return largest;
}

bool to_root(const Request& request) {
  return request.collective == Collective::reduce || request.collective == Collective::gather;
}

class DirectAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "direct"; }
  bool pipelines() const override { return false; }
  bool sends_straight() const override { return true; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective != Collective::send_recv;
  }
  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters&,
                    const CostModel& cost) const override {
    const int n = tree.ranks();
    const auto ranks = static_cast<uint64_t>(n);
    const uint64_t total = total_bytes(request, n), largest = largest_message(request, n);
    Estimate estimate;
    load_of(tree, request).set_times(cost, &estimate);
    estimate.at_once = true;
    estimate.posted_at_once = request.collective != Collective::barrier;
    estimate.messages = to_root(request) ? std::min<uint64_t>(ranks - 1, 1) : ranks - 1;
    uint64_t rounds = 1;
    if (request.collective == Collective::barrier) {
      rounds = 0;
      while ((uint64_t{1} << rounds) < ranks) rounds++;
      estimate.messages = rounds;
    }
    if (n > 1)
      add_latency(tree,
                  has_root(request.collective) ? slowest_group(tree, request.root, cost)
                                               : slowest_group(tree, cost),
                  rounds, largest, cost, &estimate);
    if (request.collective == Collective::all_reduce || request.collective == Collective::reduce)
      estimate.reduce_bytes = ranks * total;
    if (request.collective == Collective::reduce_scatter) estimate.reduce_bytes = ranks * largest;
    return estimate;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters&, const CostModel& cost,
                                      const Estimate&) const override {
    const auto others = static_cast<uint64_t>(tree.ranks()) - 1;
    SharedCoresEstimate shared;
    // Other algorithms for the other collectives do not say it either.
    if (request.collective == Collective::all_to_all)
      shared.way_ns = load_of(tree, request).way_ns(cost);
    if (has_root(request.collective)) shared.all_messages = others;
    if (to_root(request)) shared.received = others;
    return shared;
  }

  std::optional<Counts> count(const TierTree& tree, const Request& request,
                              const Parameters&) const override {
    const bool empty = request.collective == Collective::barrier || block_bytes(request, 0) == 0;
    if (empty || request.vector_variant || !request.counts.empty()) return std::nullopt;
    const auto others = static_cast<uint64_t>(tree.ranks()) - 1;
    // Whole vectors from everybody to everybody may be more bytes than a number holds.
    const auto pairs = static_cast<unsigned __int128>(others) * (others + 1);
    if (request.collective == Collective::all_reduce &&
        pairs * total_bytes(request, tree.ranks()) >> 64 != 0)
      return std::nullopt;
    Counts counts{load_of(tree, request).tier_bytes(), others, others > 0 ? 1u : 0u, {}};
    if (!has_root(request.collective)) counts.messages *= others + 1;
    if (request.collective == Collective::reduce) counts.kinds = {request.root};
    if (request.collective == Collective::all_reduce ||
        request.collective == Collective::reduce_scatter ||
        (request.collective == Collective::all_to_all && request.in_place))
      counts.kinds = {0};
    return counts;
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    const Visits visits(tree);
    const bool turns = visits.turns() && !has_root(request.collective) &&
                       request.collective != Collective::barrier;
    return make_blueprint(
        [&tree, &request, visits](int position) {
          return Direct(tree, request, visits, position).program();
        },
        turns ? std::optional(visits) : std::nullopt);
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(DirectAlgorithm)

}  // namespace sennit
