// estimate.cpp: see collectives/tiered/estimate.hpp.
#include "collectives/tiered/estimate.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "collectives/common.hpp"
#include "cost/rates.hpp"

namespace sennit::tiered {
namespace {

uint64_t time_ns(uint64_t bytes, uint64_t load, uint64_t rate) {
  return saturated(Wide{bytes} * load / kAllData * kNsPerSecond / rate);
}

// Along the slowest way from a subtree's root to one of its ranks.
struct Below {
  uint64_t latency_ns = 0, messages = 0, reduce_load = 0;
  uint32_t slowest = 0;  // the child on that way
  uint64_t turns = 0;    // messages at the subtree's own stage, one after the other
  uint64_t bases = 1;    // whole mode: how many bases the subtree holds
};

// Messages one way between the children of a group, by how many there are of each size: two that
// hold the same data in a and b parts exchange a + b - gcd(a, b) pieces, or a whole one with each
// rank of the larger.
uint64_t exchanged(const std::map<uint64_t, uint64_t>& sizes, bool whole) {
  uint64_t sum = 0;
  for (const auto& [a, as] : sizes)
    for (const auto& [b, bs] : sizes)
      sum += as * (bs - (a == b)) * (whole ? std::max(a, b) : a + b - std::gcd(a, b));
  return sum;
}

// Messages one way over a group's boundary: its part of what passes between the children of the
// groups around it.
uint64_t crossing(const StageTree& stages, const Node& node, int whole_stages) {
  uint64_t sum = 0;
  const auto own = static_cast<uint64_t>(stages.node(node.example).size);
  for (int32_t at = node.example; stages.node(at).parent >= 0; at = stages.node(at).parent) {
    const StageNode& inside = stages.node(at);
    const StageNode& around = stages.node(inside.parent);
    const auto a = static_cast<uint64_t>(inside.size);
    uint64_t between = 0;
    for (const auto& [shape, many] : stages.shape(around.shape).children) {
      const uint64_t b = stages.shape(shape).size;
      between += many * (around.depth < whole_stages ? std::max(a, b) : a + b - std::gcd(a, b));
    }
    between -= a;  // itself
    sum += between * own / a;
  }
  return sum;
}

// Every base of the group sends a whole piece to a base of each sibling, at every whole stage
// above; inside a base the ranks share that, and scatter and gather the vector once.
uint64_t whole_load(const StageTree& stages, const Node& node, int whole_stages, uint64_t bases) {
  uint64_t siblings = 0;
  int32_t base = node.example;
  for (int32_t at = node.example; at >= 0; at = stages.node(at).parent) {
    if (stages.node(at).depth < whole_stages && at != node.example)
      siblings += static_cast<uint64_t>(stages.node(at).children) - 1;
    if (stages.node(at).depth >= whole_stages) base = at;
  }
  if (base == node.example) return siblings * kAllData * bases;
  const uint64_t ranks = stages.shape(node.shape).size;
  return 2 * kAllData + siblings * kAllData * ranks / static_cast<uint64_t>(stages.node(base).size);
}

bool goes_both_ways(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::barrier;
}

// Messages that a rank of a child sends one way to the ranks of the child's siblings: of those two
// that hold the same data in a and b parts it has its part of a + b - gcd(a, b) pieces.
uint64_t sent_by_rank(uint64_t a, const std::map<uint64_t, uint64_t>& sizes) {
  uint64_t sum = 0;
  for (const auto& [b, many] : sizes)
    sum += (many - (a == b)) * divided_up(a + b - std::gcd(a, b), a);
  return sum;
}

// Of the data, in parts of kAllData: the largest that a rank exchanges with another child's. The
// ranks of a child have its share in equal parts.
uint64_t largest_part(const StageTree& stages, const Shares& shares, const Node& node) {
  uint64_t largest = 0;
  for (size_t i = 0; i < node.children.size(); i++)
    largest = std::max(largest, (node.share[i + 1] - node.share[i]) * (kAllData / kUnits) /
                                    stages.shape(shares.node(node.children[i]).shape).size);
  return largest;
}

// What a node's children come to, and its own exchange on top of that.
Below below_node(const TierTree& tree, const StageTree& stages, const Shares& shares,
                 const Node& node, const std::vector<Below>& below, int whole_stages,
                 Collective collective, const CostModel& cost) {
  const StageNode& stage = stages.node(node.example);
  const bool whole = stage.depth < whole_stages;
  const uint64_t n = node.children.size();
  const uint64_t ways = goes_both_ways(collective) && !whole ? 2 : 1;
  std::map<uint64_t, uint64_t> sizes;
  Below b;
  b.bases = 0;
  for (const uint32_t child : node.children) {
    sizes[stages.shape(shares.node(child).shape).size]++;
    b.bases += whole ? below[child].bases : 0;
    if (below[child].latency_ns >= b.latency_ns) b.slowest = child;
    b.latency_ns = std::max(b.latency_ns, below[child].latency_ns);
  }
  // What relays pass on a rank sends to every sibling, or gets from them where sums come to a root.
  const uint64_t relays = node.relays.empty() ? 0 : 1;
  const uint64_t relayed = collective == Collective::reduce ? relays : relays * (n - 1);
  for (size_t i = 0; i < n; i++) {
    const uint32_t child = node.children[i];
    const uint64_t size = stages.shape(shares.node(child).shape).size;
    const uint64_t peers = whole ? n - 1 : sent_by_rank(size, sizes);
    b.messages = std::max(b.messages, below[child].messages + ways * peers + relayed);
    // Sources of a rank's part: of the share that the child owns, or of the ranks' own blocks; with
    // whole pieces of what a base has.
    uint64_t part = kAllData / static_cast<uint64_t>(stage.size) * (whole ? b.bases : 1);
    if (!whole && goes_both_ways(collective))
      part = saturated(Wide{node.share[i + 1] - node.share[i]} * kAllData / kUnits / size);
    b.reduce_load = std::max(b.reduce_load, below[child].reduce_load + n * part);
  }
  b.turns = ways + relays;
  b.latency_ns += b.turns * planning_latency_ns(tree, stage.real, cost);
  if (!whole) b.bases = 1;
  return b;
}

// Estimate::tier_ns: of a tier's real groups' boundaries the one that takes longest, and
// Estimate::headers_ns. Whole stages send a full piece from each base to each sibling.
void set_times(const TierTree& tree, const Request& request, const StageTree& stages,
               const Shares& shares, const GroupRates& rates, const std::vector<Below>& below,
               int whole_stages, const CostModel& cost, Estimate* estimate) {
  const auto bytes = static_cast<uint64_t>(payload_bytes(request, tree.ranks()));
  const uint64_t ways = goes_both_ways(request.collective) && whole_stages == 0 ? 2 : 1;
  std::vector<uint64_t> tier_ns(tree.tiers.size(), 0), payload_ns = tier_ns;
  for (size_t i = 0; i + 1 < shares.nodes().size(); i++) {
    const Node& node = shares.nodes()[i];
    const Shape& shape = stages.shape(node.shape);
    if (shape.tier < 0) continue;
    uint64_t out = node.out_load, in = node.in_load, headers = 0;
    if (cost.message_bytes > 0)
      headers = crossing(stages, node, whole_stages) * ways * cost.message_bytes;
    if (whole_stages > 0) out = in = whole_load(stages, node, whole_stages, below[i].bases);
    uint64_t &tier = tier_ns[index(shape.tier)], &payload = payload_ns[index(shape.tier)];
    const size_t group = index(stages.node(node.example).group);
    for (const auto& [load, rate] :
         {std::pair(out, rates.egress[group]), std::pair(in, rates.ingress[group])}) {
      const uint64_t ns = time_ns(bytes, load, rate);
      const uint64_t headers_ns = load > 0 && bytes > 0 ? transfer_ns(headers, rate) : 0;
      payload = std::max(payload, ns);
      tier = std::max(tier, saturated(Wide{ns} + headers_ns));
    }
  }
  if (cost.message_bytes > 0)
    for (size_t tier = 0; tier < tier_ns.size(); tier++)
      estimate->headers_ns.push_back(tier_ns[tier] - payload_ns[tier]);
  estimate->tier_ns = std::move(tier_ns);
}

}  // namespace

Estimate estimate(const TierTree& tree, const Request& request, const StageTree& stages,
                  const Shares& shares, const GroupRates& rates, int whole_stages,
                  const CostModel& cost) {
  std::vector<Below> below(shares.nodes().size());
  for (size_t i = 0; i < shares.nodes().size(); i++)
    if (const Node& node = shares.nodes()[i]; !node.children.empty())
      below[i] =
          below_node(tree, stages, shares, node, below, whole_stages, request.collective, cost);
  const Below& all = below[shares.root()];
  Estimate result;
  set_times(tree, request, stages, shares, rates, below, whole_stages, cost, &result);
  const auto payload = static_cast<uint64_t>(payload_bytes(request, tree.ranks()));
  const bool has_blocks = request.collective == Collective::all_gather ||
                          request.collective == Collective::reduce_scatter;
  for (uint32_t at = shares.root(); below[at].turns > 0; at = below[at].slowest) {
    const Node& node = shares.node(at);
    const StageNode& stage = stages.node(node.example);
    const bool whole = stage.depth < whole_stages;
    const uint64_t part = whole || has_blocks
                              ? kAllData / static_cast<uint64_t>(stage.size) * below[at].bases
                              : largest_part(stages, shares, node);
    add_latency(tree, stage.real, below[at].turns,
                static_cast<uint64_t>(Wide{payload} * part / kAllData), cost, &result);
  }
  result.messages = all.messages;
  if (request.reduces()) {
    const auto bytes = static_cast<uint64_t>(payload_bytes(request, tree.ranks()));
    result.reduce_bytes = static_cast<uint64_t>(Wide{bytes} * all.reduce_load / kAllData);
  }
  return result;
}

uint64_t path_ns(const Request& request, const Estimate& estimate) {
  if (request.collective != Collective::broadcast && request.collective != Collective::reduce)
    return 0;
  const bool one_tier =
      std::ranges::count_if(estimate.tier_ns, [](uint64_t ns) { return ns > 0; }) == 1;
  return one_tier ? 2 * *std::ranges::max_element(estimate.tier_ns) : 0;
}

uint64_t all_messages(const Request& request, const StageTree& stages, const Shares& shares,
                      int whole_stages) {
  std::vector<uint64_t> below(shares.nodes().size(), 0);
  for (size_t i = 0; i < below.size(); i++) {
    const Node& node = shares.nodes()[i];
    std::map<uint64_t, uint64_t> sizes;
    for (const uint32_t child : node.children) {
      sizes[stages.shape(shares.node(child).shape).size]++;
      below[i] += below[child];
    }
    const bool whole = stages.node(node.example).depth < whole_stages;
    const uint64_t ways = goes_both_ways(request.collective) && !whole ? 2 : 1;
    below[i] += ways * exchanged(sizes, whole);  // what a relay sends, others need not
  }
  return below[shares.root()];
}

}  // namespace sennit::tiered
