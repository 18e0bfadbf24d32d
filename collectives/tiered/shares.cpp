// shares.cpp: see collectives/tiered/shares.hpp.
#include "collectives/tiered/shares.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/index.hpp"

namespace sennit::tiered {
namespace {

using Signed = __int128;

constexpr int kTimeBits = 32;  // in 2^32 units of time the slowest group sends kAllData
constexpr uint64_t kMaxTime = uint64_t{1} << 50;
constexpr uint64_t kNoLimit = uint64_t{1} << 62;
// Relays below this part of a child's data, and overloads below it, are not worth a message.
constexpr uint64_t kNegligible = uint64_t{1} << 20;

uint64_t scale(uint64_t x, Wide numerator, Wide denominator) {
  return static_cast<uint64_t>(Wide{x} * numerator / denominator);
}

// What a pipe of this rate sends within t, in parts of kAllData.
uint64_t reach(uint64_t t, uint64_t rate, uint64_t reference) {
  const Wide units = Wide{t} * rate / reference;
  if (units >> (kTimeBits + 20) != 0) return kNoLimit;
  return static_cast<uint64_t>(units * kAllData >> kTimeBits);
}

Wide sum(const std::vector<uint64_t>& values) {
  Wide total = 0;
  for (const uint64_t v : values) total += v;
  return total;
}

// Deals the surplus of some children out to those with room, in proportion to the room, along the
// children's order. Both are laid on one axis [0, moved); every overlap of a giver with a taker is
// a relay.
std::vector<Relay> match(const std::vector<uint64_t>& data, const std::vector<uint64_t>& surplus,
                         const std::vector<uint64_t>& room, std::vector<uint64_t>& given,
                         std::vector<uint64_t>& taken) {
  std::vector<Relay> relays;
  const Wide surplus_total = sum(surplus), room_total = sum(room);
  const Wide moved = std::min(surplus_total, room_total);
  if (moved == 0) return relays;
  Wide from_end = 0, to_end = 0;  // sums so far, not yet scaled to the axis
  uint32_t to = 0;
  to_end += room[0];
  for (uint32_t from = 0; from < surplus.size(); from++) {
    if (surplus[from] == 0) continue;
    const Wide begin = moved * from_end / surplus_total;
    from_end += surplus[from];
    const Wide end = moved * from_end / surplus_total;
    given[from] = static_cast<uint64_t>(end - begin);
    if (data[from] - given[from] < data[from] / kNegligible) given[from] = data[from];
    const uint64_t units = scale(kUnits, given[from], data[from]);
    for (Wide at = begin; at < end;) {
      while (to + 1 < room.size() && moved * to_end / room_total <= at) to_end += room[++to];
      const Wide until = std::min(end, moved * to_end / room_total);
      if (until <= at) break;
      taken[to] += static_cast<uint64_t>(until - at);
      relays.push_back(
          {from, to, kUnits - units + static_cast<uint64_t>(units * (at - begin) / (end - begin)),
           kUnits - units + static_cast<uint64_t>(units * (until - begin) / (end - begin))});
      at = until;
    }
    if (!relays.empty() && relays.back().from == from) relays.back().end = kUnits;
  }
  return relays;
}

}  // namespace

Shares::Shares(const StageTree& tree, Pattern pattern) : tree_(tree), pattern_(pattern) {
  reference_rate_ = ~uint64_t{0};
  for (const Shape& s : tree_.shapes())
    if (s.out_rate != 0) reference_rate_ = std::min(reference_rate_, s.out_rate);
  most_.assign(tree_.shapes().size(), 0);
  most_at_.assign(tree_.shapes().size(), ~uint64_t{0});
  if (pattern_ == Pattern::all_gather) time_ = least([&](uint64_t t) { return feasible(t); });
  resolve(0, {});
}

// Every group must send what only it has: its partial sum of everything, or its own data.
uint64_t Shares::must_send(uint32_t shape) const {
  if (pattern_ == Pattern::all_reduce) return kAllData;
  const uint64_t total = tree_.shapes().back().weight;
  return total == 0 ? 0 : scale(kAllData, tree_.shape(shape).weight, total);
}

Shares::Signed Shares::sum_of_children(uint32_t shape, uint64_t t) const {
  Signed total = 0;
  for (const auto& [child, many] : tree_.shape(shape).children)
    total += Signed{most(child, t)} * many;
  return total;
}

Shares::Signed Shares::limit(uint32_t shape, uint64_t t) const {
  const Shape& s = tree_.shape(shape);
  Signed result = kNoLimit;
  if (s.out_rate != 0) result = reach(t, s.out_rate, reference_rate_);
  if (s.fanout > 0) {
    const Signed among_children =
        Signed{s.fanout - 1} * kAllData * (pattern_ == Pattern::all_reduce ? 2 : 1);
    result = std::min(result, sum_of_children(shape, t) - among_children);
  }
  return result;
}

uint64_t Shares::most(uint32_t shape, uint64_t t) const {
  if (most_at_[shape] != t) {
    const Signed most = std::max(limit(shape, t), Signed{must_send(shape)});
    most_[shape] = static_cast<uint64_t>(std::min(most, Signed{kNoLimit}));
    most_at_[shape] = t;
  }
  return most_[shape];
}

bool Shares::feasible(uint64_t t) const {
  const uint32_t root = static_cast<uint32_t>(tree_.shapes().size()) - 1;
  for (uint32_t i = 0; i < root; i++) {
    const Shape& s = tree_.shape(i);
    if (s.in_rate != 0 && reach(t, s.in_rate, reference_rate_) < kAllData - must_send(i))
      return false;
    if (limit(i, t) < Signed{must_send(i)}) return false;
  }
  return limit(root, t) >= 0;
}

// The least t for which `enough` holds; it is monotone.
template <typename F>
uint64_t Shares::least(F&& enough) const {
  uint64_t low = 0, high = kMaxTime;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (enough(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

std::vector<uint32_t> Shares::child_shapes(uint32_t shape) const {
  std::vector<uint32_t> result;
  result.reserve(tree_.shape(shape).fanout);
  for (const auto& [child, many] : tree_.shape(shape).children)
    result.insert(result.end(), many, child);
  return result;
}

Shares::Split Shares::split_all_reduce(uint32_t shape, Outward outward) const {
  const std::vector<uint32_t> children = child_shapes(shape);
  const size_t n = children.size();
  Split split;
  split.by.assign(n, 1);
  if (tree_.shape(shape).children.size() > 1) {
    const Signed needed = Signed{2 * (n - 1)} * kAllData + outward.own;
    const uint64_t t = least([&](uint64_t at) { return sum_of_children(shape, at) >= needed; });
    for (size_t c = 0; c < n; c++) split.by[c] = most(children[c], t) - kAllData;
    // Two children send the same whoever owns: then all ranks own alike.
    if (std::all_of(split.by.begin(), split.by.end(), [](uint64_t b) { return b == 0; }))
      for (size_t c = 0; c < n; c++) split.by[c] = tree_.shape(children[c]).size;
  }
  const Wide total = sum(split.by);
  const uint64_t shared = (n - 2) * kAllData + outward.own;
  split.outward.resize(n);
  for (size_t c = 0; c < n; c++)
    split.outward[c].own = kAllData + scale(shared, split.by[c], total);
  return split;
}

Shares::Split Shares::split_all_gather(uint32_t shape, Outward outward) const {
  const std::vector<uint32_t> children = child_shapes(shape);
  const size_t n = children.size();
  const uint64_t own = must_send(shape);  // the group's own data
  Split split;
  split.by.assign(n, 1);
  std::vector<uint64_t> data(n), room(n, 0), surplus(n, 0);
  for (size_t c = 0; c < n; c++) data[c] = must_send(children[c]);
  if (tree_.shape(shape).children.size() > 1) {
    for (size_t c = 0; c < n; c++) split.by[c] = most(children[c], time_) - data[c];
    if (std::all_of(split.by.begin(), split.by.end(), [](uint64_t b) { return b == 0; }))
      for (size_t c = 0; c < n; c++) split.by[c] = tree_.shape(children[c]).size;
  }
  const Wide by_total = sum(split.by);
  // copies of outside data that they send
  const uint64_t foreign = (n - 1) * (kAllData - own) + outward.passed;
  // of own data beyond the first, times `own`
  const Wide copies = Wide{n - 2} * own + outward.own;
  std::vector<uint64_t> passed(n);
  for (size_t c = 0; c < n; c++) {
    passed[c] = scale(foreign, split.by[c], by_total);
    if (copies == 0 || tree_.shape(shape).children.size() == 1) continue;
    const uint64_t spare = split.by[c] > passed[c] ? split.by[c] - passed[c] : 0;
    uint64_t limit = static_cast<uint64_t>(std::min<Wide>(Wide{spare} * own / copies, kNoLimit));
    if (limit < kAllData / kNegligible) limit = 0;
    if (data[c] > limit + limit / kNegligible)
      surplus[c] = data[c] - limit;
    else
      room[c] = std::min(kAllData, limit - std::min(limit, data[c]));
  }
  std::vector<uint64_t> given(n, 0), taken(n, 0);
  split.relays = match(data, surplus, room, given, taken);
  split.outward.resize(n);
  for (size_t c = 0; c < n; c++) {
    const uint64_t kept = data[c] - given[c];
    split.outward[c].own = data[c] + (own == 0 ? 0 : scale(kept, copies, own));
    split.outward[c].passed = passed[c] + (own == 0 ? 0 : scale(taken[c], copies, own));
  }
  return split;
}

uint32_t Shares::resolve(int32_t stage_node, Outward outward) {
  const StageNode& at = tree_.node(stage_node);
  const auto known = known_.find({at.shape, outward.own, outward.passed});
  if (known != known_.end()) return known->second;
  Node node;
  node.shape = at.shape;
  node.example = stage_node;
  node.out_load = outward.own + outward.passed;
  node.in_load = pattern_ == Pattern::all_reduce ? outward.own : kAllData - must_send(at.shape);
  if (at.children > 0) {
    Split split = pattern_ == Pattern::all_reduce ? split_all_reduce(at.shape, outward)
                                                  : split_all_gather(at.shape, outward);
    const Wide total = sum(split.by);
    Wide before = 0;
    node.share.push_back(0);
    for (const uint64_t by : split.by) {
      before += by;
      node.share.push_back(static_cast<uint64_t>(before * kUnits / total));
    }
    node.relays = std::move(split.relays);
    for (int32_t c = 0; c < at.children; c++)
      node.children.push_back(resolve(at.first_child + c, split.outward[index(c)]));
  }
  nodes_.push_back(std::move(node));
  const uint32_t result = static_cast<uint32_t>(nodes_.size()) - 1;
  known_.emplace(std::make_tuple(at.shape, outward.own, outward.passed), result);
  return result;
}

}  // namespace sennit::tiered
