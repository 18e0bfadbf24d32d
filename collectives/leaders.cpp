// leaders.cpp: all-reduce, all-gather and barrier with the fewest messages: up a tree and down
// again.
//
// The tree is FabricTree's, so every group is entered once. What a subtree holds goes up to the
// leaders of the outermost groups; these exchange it directly (one round), or, as a second
// candidate, send it on up to position 0. The results go down the same edges. For tiny messages
// where messages cost more than rounds: ranks that share cores, containers on one machine. Sums are
// of whole pieces: children and the rank itself by position, then leaders in their order, that is,
// in fabric order. An all-gather carries a subtree's blocks up and what the subtree lacks down.
// Parameters: radices[0] is the fan-out k within a group, whole_stages 1: the leaders exchange.
// Messages: 2 (n - 1) in all, or 2 (n - g) + g (g - 1) for g outermost groups. On the wire: M into
// and out of every group's leader, up to k M a tier. Scratch: sums M per child and M, else none.
#include <algorithm>

#include "collectives/common.hpp"
#include "collectives/fabric_tree.hpp"

namespace sennit {
namespace {

constexpr double kSmallBytes = 64 * 1024;  // larger messages are not worth comparing

struct Shape {
  FabricTree tree;
  std::vector<int32_t> leaders;  // that exchange; empty: all goes to position 0
  std::vector<uint8_t> leads;    // by position: is one of them

  Shape(const TierTree& tiers, const Parameters& parameters)
      : tree(tiers, 0, fan_out(parameters)), leads(index(tiers.ranks()), 0) {
    const Group& root = tiers.root();
    if (parameters.whole_stages == 0 || root.children == 0) return;
    for (int32_t c = root.first_child; c < root.first_child + root.children; c++) {
      leaders.push_back(tiers.groups[index(c)].first);
      leads[index(leaders.back())] = 1;
    }
  }
  bool is_leader(int p) const { return leads[index(p)] != 0; }
  int parent(int p) const { return is_leader(p) ? -1 : tree.node(p).parent; }
  // Messages of position p, which sends one to each of those and to each other leader.
  uint64_t sends(int p) const {
    const size_t siblings = is_leader(p) ? leaders.size() - 1 : 0;
    return served(p) + siblings + (parent(p) >= 0 ? 1 : 0);
  }
  // Blocks that are below p when all within its outermost group have sent up.
  Range below(const TierTree& tiers, int p) const {
    if (is_leader(p)) {
      const Group& g = tiers.groups[index(tiers.child_at(0, p))];
      const auto first = static_cast<uint64_t>(g.first);
      return block_range(first, first + static_cast<uint64_t>(g.size));
    }
    const FabricTree::Node& node = tree.node(p);
    return block_range(static_cast<uint64_t>(node.begin), static_cast<uint64_t>(node.end));
  }
  // How many children() are. Leaders are served by leaders alone.
  uint64_t served(int p) const {
    if (!is_leader(p)) return tree.node(p).children;
    uint64_t count = 0;
    for (const int child : tree.children(p)) count += is_leader(child) ? 0 : 1;
    return count;
  }
  std::vector<int> children(int p) const {  // farthest first
    std::vector<int> result;
    for (const int child : tree.children(p))
      if (!is_leader(child)) result.push_back(child);
    return result;
  }
};

// Bytes between position p and its parent: up, what lies below p, and down, what does not; of a sum
// the whole vector.
class Bytes {
 public:
  Bytes(const TierTree& tree, const Request& request, const Shape& shape)
      : tree_(tree),
        shape_(shape),
        total_(total_bytes(request, tree.ranks())),
        blocks_(request.collective == Collective::all_gather),
        offsets_(blocks_ ? block_offsets(request, tree.ranks()) : std::vector<uint64_t>()) {}
  uint64_t up(int p) const {
    if (!blocks_) return total_;
    const Range r = shape_.below(tree_, p);
    return offsets_[r.block + r.end / kUnits] - offsets_[r.block];
  }
  uint64_t down(int p) const { return blocks_ ? total_ - up(p) : total_; }

 private:
  const TierTree& tree_;
  const Shape& shape_;
  const uint64_t total_;
  const bool blocks_;
  const std::vector<uint64_t> offsets_;
};

class Writer {
 public:
  Writer(const TierTree& tree, const Request& request, const Shape& shape, int p)
      : tree_(tree), request_(request), shape_(shape), p_(p), builder_(request.in_place) {
    barrier_ = request.collective == Collective::barrier;
  }

  Program gather() {
    const auto n = static_cast<uint64_t>(tree_.ranks());
    const std::vector<int> children = shape_.children(p_);
    const int parent = shape_.parent(p_);
    const Range mine = shape_.below(tree_, p_);
    copy_own(builder_, request_,
             block_range(static_cast<uint64_t>(p_), static_cast<uint64_t>(p_) + 1));
    for (const int child : children) receive_blocks(child, {shape_.below(tree_, child)});
    if (parent >= 0) {
      send_blocks(parent, {mine});
      receive_blocks(parent, others(mine, n));
    }
    const auto [self, leaders] = place_among_leaders();
    for (size_t i = 1; i < leaders; i++) send_blocks(shape_.leaders[(self + i) % leaders], {mine});
    for (size_t i = 1; i < leaders; i++) {
      const int other = shape_.leaders[(self + leaders - i) % leaders];
      receive_blocks(other, {shape_.below(tree_, other)});
    }
    for (const int child : children) send_blocks(child, others(shape_.below(tree_, child), n));
    return builder_.finish();
  }

  Program sum() {
    const std::vector<int> children = shape_.children(p_);
    std::vector<std::pair<int, Operand>> parts = {{p_, builder_.input({&all_, 1})}};
    for (const int child : children) parts.emplace_back(child, receive(child));
    const int parent = shape_.parent(p_);
    const bool top = parent < 0;
    const bool alone = top && shape_.leaders.size() < 2;
    Operand sum = add(parts, alone);
    if (top && !alone) {
      std::vector<std::pair<int, Operand>> sums = {{p_, sum}};
      const auto [self, n] = place_among_leaders();
      for (size_t i = 1; i < n; i++) send(shape_.leaders[(self + i) % n], sum);
      for (size_t i = 1; i < n; i++) {
        const int other = shape_.leaders[(self + n - i) % n];
        sums.emplace_back(other, receive(other));
      }
      sum = add(sums, true);
    } else if (!top) {
      send(parent, sum);
      sum = result();
      builder_.recv(parent, sum, tree_.crossing_tier(p_, parent), true);
    }
    for (const int child : children) send(child, sum);
    return builder_.finish();
  }

 private:
  // Of how many leaders that exchange this is one, and which; {0, 0} if it is none.
  std::pair<size_t, size_t> place_among_leaders() const {
    if (!shape_.is_leader(p_)) return {0, 0};
    const auto at = std::find(shape_.leaders.begin(), shape_.leaders.end(), p_);
    return {index(at - shape_.leaders.begin()), shape_.leaders.size()};
  }
  static std::vector<Range> others(const Range& mine, uint64_t blocks) {
    const uint64_t end = mine.block + mine.end / kUnits;
    std::vector<Range> result;
    if (mine.block > 0) result.push_back(block_range(0, mine.block));
    if (end < blocks) result.push_back(block_range(end, blocks));
    return result;
  }
  void send_blocks(int peer, const std::vector<Range>& blocks) {
    builder_.send(peer, builder_.output(blocks), tree_.crossing_tier(p_, peer));
  }
  void receive_blocks(int peer, const std::vector<Range>& blocks) {
    builder_.recv(peer, builder_.output(blocks), tree_.crossing_tier(p_, peer));
  }
  Operand result() { return barrier_ ? builder_.scratch({&all_, 1}) : builder_.output({&all_, 1}); }
  void send(int peer, Operand what) {
    builder_.send(peer, what, tree_.crossing_tier(p_, peer), true);
  }
  Operand receive(int peer) {
    const Operand arrived = builder_.scratch({&all_, 1});
    builder_.recv(peer, arrived, tree_.crossing_tier(p_, peer), true);
    return arrived;
  }
  Operand add(std::vector<std::pair<int, Operand>>& parts, bool last) {
    if (parts.size() == 1 && !last) return parts[0].second;
    std::sort(parts.begin(), parts.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Operand> sources;
    sources.reserve(parts.size());
    for (const auto& part : parts) sources.push_back(part.second);
    const Operand sum = last ? result() : builder_.scratch({&all_, 1});
    builder_.reduce(sum, sources, last && !barrier_);
    return sum;
  }

  const TierTree& tree_;
  const Request& request_;
  const Shape& shape_;
  const int p_;
  const Range all_ = block_range(0, 1);
  ProgramBuilder builder_;
  bool barrier_ = false;
};

class Leaders : public Algorithm {
 public:
  std::string_view name() const override { return "leaders"; }
  Takes takes(Collective) const override { return {.radices = 1, .whole_stages = 1}; }
  bool pipelines() const override { return false; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::all_reduce ||
           request.collective == Collective::all_gather ||
           request.collective == Collective::barrier;
  }

  std::vector<Parameters> candidates(const TierTree& tree, const Request& request) const override {
    std::vector<Parameters> all;
    for (const uint16_t k : different_fan_outs(tree, kFanOuts)) all.emplace_back().radices = {k};
    if (payload_bytes(request, tree.ranks()) > kSmallBytes) {
      all.resize(1);
      return all;
    }
    if (tree.root().children > 8 || tree.root().children == tree.ranks()) return all;
    for (const uint16_t k : different_fan_outs(tree, kFanOuts, true))
      all.push_back({.chunks = 1, .radices = {k}, .whole_stages = 1});
    return all;
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters& parameters,
                    const CostModel& cost) const override {
    const Shape shape(tree, parameters);
    const Bytes bytes(tree, request, shape);
    Estimate estimate;
    Load load(tree);
    std::vector<uint64_t> depth_ns(index(tree.ranks()), 0);
    // By rank: what is read on the way from it to its leader, in messages.
    std::vector<uint64_t> read(index(tree.ranks()), 0);
    uint64_t most_sources = 1;
    for (const int p : shape.tree.top_down()) {
      const uint64_t children = shape.served(p),
                     siblings = shape.is_leader(p) ? shape.leaders.size() - 1 : 0;
      const int parent = shape.parent(p);
      estimate.messages = std::max(estimate.messages, shape.sends(p));
      most_sources = std::max(most_sources, children + 1 + (siblings > 0 ? siblings + 1 : 0));
      for (const int other : shape.leaders)
        if (siblings > 0 && other != p) load.add(p, other, bytes.up(p));
      if (parent < 0) continue;
      const int group = shape.tree.node(p).group;
      load.add_within(group, p, parent, bytes.up(p));
      load.add_within(group, parent, p, bytes.down(p));
      depth_ns[index(p)] = depth_ns[index(parent)] + planning_latency_ns(tree, group, cost);
      read[index(p)] = read[index(parent)] + shape.served(parent) + 1;
    }
    load.set_times(cost, &estimate);
    estimate.at_once = true;
    for (int p = farthest(depth_ns); shape.parent(p) >= 0; p = shape.parent(p))
      for (const uint64_t message : {bytes.up(p), bytes.down(p)})
        add_latency(tree, shape.tree.node(p).group, 1, message, cost, &estimate);
    if (shape.leaders.size() > 1)
      add_latency(tree, 0, 1, bytes.up(shape.leaders[0]), cost, &estimate);
    if (request.reduces()) {
      const uint64_t across = shape.leaders.size() > 1 ? shape.leaders.size() : 0;
      set_readings(most_sources, *std::ranges::max_element(read) + across,
                   total_bytes(request, tree.ranks()), &estimate);
    }
    return estimate;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters& parameters, const CostModel& cost,
                                      const Estimate&) const override {
    const Shape shape(tree, parameters);
    const Bytes bytes(tree, request, shape);
    const GroupRates rates = planning_rates(tree, cost);
    const GroupRates to_leaders = shape.tree.to_leaders(tree, rates);
    SharedCoresEstimate shared;
    // Whole messages, hop after hop: up to a leader, across, and down. Those of one parent, or of
    // one leader, share its link.
    std::vector<uint64_t> up_ns(index(tree.ranks()), 0), down_ns = up_ns;
    uint64_t across_ns = 0;
    for (const int p : shape.tree.top_down()) {
      shared.all_messages += shape.sends(p);
      for (const int other : shape.leaders)
        if (shape.is_leader(p) && other != p)
          across_ns = std::max(across_ns, (shape.leaders.size() - 1) *
                                              message_ns(tree, rates, p, other, bytes.up(p)));
      const int parent = shape.parent(p);
      if (parent < 0) continue;
      const uint64_t siblings = shape.served(parent);
      up_ns[index(p)] =
          up_ns[index(parent)] + siblings * shape.tree.up_ns(p, to_leaders, bytes.up(p));
      down_ns[index(p)] =
          down_ns[index(parent)] + siblings * shape.tree.down_ns(p, to_leaders, bytes.down(p));
    }
    shared.path_ns =
        *std::ranges::max_element(up_ns) + across_ns + *std::ranges::max_element(down_ns);
    return shared;
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters& parameters) const override {
    const auto shape = std::make_shared<const Shape>(tree, parameters);
    return make_blueprint([&tree, &request, shape](int position) {
      Writer writer(tree, request, *shape, position);
      return request.collective == Collective::all_gather ? writer.gather() : writer.sum();
    });
  }
};

}  // namespace
SENNIT_ALGORITHM_ENTRY(Leaders)
}  // namespace sennit
