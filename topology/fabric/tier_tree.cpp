// tier_tree.cpp: the contracted fabric. Everything is derived from the groups' parents, children
// and figures; finish() fills in the rest and check() proves that it all fits together. Cost:
// O(groups); look-ups O(depth).
#include "topology/fabric/tier_tree.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "base/status.hpp"
#include "topology/fabric/units.hpp"

namespace sennit {
namespace {

Capacity smaller(const Capacity& a, const Capacity& b) {
  if (!a.known()) return b;
  if (!b.known()) return a;
  return b.bytes_per_s < a.bytes_per_s ? b : a;
}

std::string capacity_text(const Group& group) {
  const auto one = [](const Capacity& capacity) {
    return capacity.known()
               ? fmt::format("{} {}", format_rate(capacity.bytes_per_s), name(capacity.provenance))
               : std::string("unknown");
  };
  if (group.egress.bytes_per_s == group.ingress.bytes_per_s &&
      group.egress.provenance == group.ingress.provenance)
    return one(group.egress);
  return fmt::format("out {}, in {}", one(group.egress), one(group.ingress));
}

std::string check_figures(const TierTree& tree, size_t i) {
  const Group& group = tree.groups[i];
  for (const Capacity* capacity : {&group.egress, &group.ingress})
    if (capacity->known() != (capacity->provenance != Provenance::unknown))
      return fmt::format("group {}: a capacity of {} bytes/s with provenance {}", i,
                         capacity->bytes_per_s, name(capacity->provenance));
  if (i == 0 && (group.egress.known() || group.ingress.known())) return "the root has a capacity";
  if (group.planes == 0) return fmt::format("group {}: no planes", i);
  if (group.tier >= tree.tiers.size())
    return fmt::format("group {}: tier {} of {}", i, group.tier, tree.tiers.size());
  return {};
}

// Children consecutive and breadth first, tiers rising, sizes and first positions adding up.
std::string check_shape(const TierTree& tree) {
  if (tree.groups.empty()) return "no groups";
  if (tree.groups[0].parent != -1) return "the root has a parent";
  size_t next = 1;  // where the next inner group's children must begin
  for (size_t i = 0; i < tree.groups.size(); i++) {
    const Group& group = tree.groups[i];
    if (std::string wrong = check_figures(tree, i); !wrong.empty()) return wrong;
    if (i >= next && i != 0) return fmt::format("group {}: no parent holds it", i);
    if (group.children == 0) {
      if (group.first_child != -1)
        return fmt::format("leaf {}: first_child {}", i, group.first_child);
      if (group.tier != 0) return fmt::format("leaf {}: tier {}, not 0", i, group.tier);
      if (group.size != 1) return fmt::format("leaf {}: size {}, not 1", i, group.size);
      continue;
    }
    if (group.children < 2) return fmt::format("group {}: {} children", i, group.children);
    if (group.first_child < 0 || index(group.first_child) != next)
      return fmt::format("group {}: children begin at {}, not {}", i, group.first_child, next);
    if (index(group.children) > tree.groups.size() - next)
      return fmt::format("group {}: children beyond the last group", i);
    next += index(group.children);
    int32_t position = group.first;
    for (size_t c = index(group.first_child); c < next; c++) {
      const Group& child = tree.groups[c];
      if (child.parent != static_cast<int32_t>(i))
        return fmt::format("group {}: parent {}, not {}", c, child.parent, i);
      if (child.tier >= group.tier)
        return fmt::format("group {}: tier {} within tier {}", c, child.tier, group.tier);
      if (child.first != position || child.size < 1)
        return fmt::format("group {}: positions {} + {}, not from {}", c, child.first, child.size,
                           position);
      position += child.size;
    }
    if (position != group.first + group.size)
      return fmt::format("group {}: size {}, its children's {}", i, group.size,
                         position - group.first);
  }
  return {};
}

std::string check_order(const TierTree& tree) {
  const size_t n = index(tree.groups[0].size);
  if (tree.groups[0].first != 0) return "the root does not begin at position 0";
  if (tree.rank_of_position.size() != n || tree.position_of_rank.size() != n ||
      tree.leaf_of_position.size() != n ||
      (!tree.home_plane.empty() && tree.home_plane.size() != n))
    return fmt::format("{} ranks, but tables of {}, {}, {} and {}", n, tree.rank_of_position.size(),
                       tree.position_of_rank.size(), tree.leaf_of_position.size(),
                       tree.home_plane.size());
  for (size_t p = 0; p < n; p++) {
    const int32_t rank = tree.rank_of_position[p];
    if (rank < 0 || index(rank) >= n ||
        tree.position_of_rank[index(rank)] != static_cast<int32_t>(p))
      return fmt::format("position {}: rank {}, which is not at that position", p, rank);
    const int32_t leaf = tree.leaf_of_position[p];
    if (leaf < 0 || index(leaf) >= tree.groups.size() || !tree.is_leaf(leaf) ||
        tree.groups[index(leaf)].first != static_cast<int32_t>(p))
      return fmt::format("position {}: leaf {}, which is not its leaf", p, leaf);
  }
  return {};
}

}  // namespace

const char* name(Wire wire) {
  switch (wire) {
    case Wire::unknown:
      return "";
    case Wire::infiniband:
      return "infiniband";
    case Wire::roce:
      return "roce";
    case Wire::ethernet:
      return "ethernet";
  }
  return "";
}

Wire wire_called(std::string_view wanted) {
  for (const Wire wire : {Wire::infiniband, Wire::roce, Wire::ethernet})
    if (wanted == name(wire)) return wire;
  return Wire::unknown;
}

const char* name(Provenance provenance) {
  switch (provenance) {
    case Provenance::unknown:
      return "unknown";
    case Provenance::assumed:
      return "assumed";
    case Provenance::declared:
      return "declared";
    case Provenance::measured:
      return "measured";
  }
  return "unknown";
}

int TierTree::child_at(int group, int position) const {
  const Group& g = groups[index(group)];
  const auto first = groups.begin() + g.first_child;
  const auto after = std::upper_bound(first, first + g.children, position,
                                      [](int p, const Group& child) { return p < child.first; });
  return static_cast<int>(after - groups.begin()) - 1;
}

int TierTree::common_group(int a, int b) const {
  int32_t group = leaf_of_position[index(a)];
  for (;;) {
    const Group& g = groups[index(group)];
    if (g.parent < 0 || (b >= g.first && b < g.first + g.size)) return group;
    group = g.parent;
  }
}

int TierTree::crossing_tier(int a, int b) const {
  if (a == b) return 0;
  const int group = common_group(a, b);
  return std::max(groups[index(child_at(group, a))].tier, groups[index(child_at(group, b))].tier);
}

double TierTree::oversubscription(int group) const {
  const Group& g = groups[index(group)];
  if (!g.egress.known()) return 0;
  double sum = 0;
  for (int32_t c = g.first_child; c < g.first_child + g.children; c++) {
    if (!groups[index(c)].egress.known()) return 0;
    sum += static_cast<double>(groups[index(c)].egress.bytes_per_s);
  }
  return sum / static_cast<double>(g.egress.bytes_per_s);
}

bool TierTree::capacities_known() const {
  return std::all_of(groups.begin() + 1, groups.end(),
                     [](const Group& g) { return g.egress.known() && g.ingress.known(); });
}

bool TierTree::is_uniform() const {
  std::vector<const Group*> first(tiers.size(), nullptr);
  return std::ranges::all_of(groups, [&](const Group& group) {
    const Group*& like = first[group.tier];
    if (!like) like = &group;
    return group.children == like->children && group.size == like->size &&
           group.planes == like->planes && group.egress.bytes_per_s == like->egress.bytes_per_s &&
           group.ingress.bytes_per_s == like->ingress.bytes_per_s &&
           group.latency_ns == like->latency_ns && group.wiring() == like->wiring();
  });
}

uint64_t TierTree::fingerprint() const {
  uint64_t hash = mix(0, groups.size());
  for (const Group& group : groups) {
    hash = mix(hash, (static_cast<uint64_t>(group.children) << 16) |
                         (static_cast<uint64_t>(group.tier) << 8) | group.planes);
    hash = mix(hash, group.egress.bytes_per_s);
    hash = mix(hash, group.ingress.bytes_per_s);
    hash = mix(hash, group.latency_ns);
    // So that trees without keep their numbers.
    if (group.wire != Wire::unknown) hash = mix(hash, group.wiring());
    if (group.egress.burst_bytes | group.ingress.burst_bytes)
      hash = mix(mix(hash, group.egress.burst_bytes), group.ingress.burst_bytes);
  }
  for (const uint8_t plane : home_plane) hash = mix(hash, plane);
  return hash;
}

std::string TierTree::to_text() const {
  std::string text = fmt::format("{} rank{}\n", ranks(), ranks() == 1 ? "" : "s");
  // Depth first, with the groups still to be written on a stack; the deepest tree has 255 tiers.
  std::vector<std::pair<int32_t, int>> stack = {{0, 0}};
  while (!stack.empty()) {
    const auto [i, depth] = stack.back();
    stack.pop_back();
    const Group& g = groups[index(i)];
    text.append(2 * static_cast<size_t>(depth), ' ');
    text += g.tier < tiers.size() ? tiers[g.tier].name : fmt::format("tier{}", g.tier);
    if (!g.name.empty()) text += fmt::format(" \"{}\"", g.name);
    if (g.children == 0) text += fmt::format(" {}", rank_of_position[index(g.first)]);
    if (g.children > 0) text += fmt::format(": {} ranks", g.size);
    if (i != 0) text += fmt::format(", {}", capacity_text(g));
    if (g.planes > 1) text += fmt::format(", {} planes", g.planes);
    if (g.children == 0 && !home_plane.empty())
      text += fmt::format(", plane {}", home_plane[index(g.first)]);
    if (const double ratio = oversubscription(i); ratio > 0 && g.children > 0)
      text += fmt::format(", {:.2f}:1", ratio);
    if (g.latency_ns != 0) text += fmt::format(", latency {}", format_time(g.latency_ns));
    if (g.wire != Wire::unknown) text += fmt::format(", {}", sennit::name(g.wire));
    text += '\n';
    for (int32_t c = g.first_child + g.children - 1; c >= g.first_child && c > 0; c--)
      stack.emplace_back(c, depth + 1);
  }
  return text;
}

TierTree TierTree::flat(int ranks) { return uniform({ranks}); }

TierTree TierTree::uniform(const std::vector<int>& fanouts, const std::vector<uint64_t>& egress) {
  SENNIT_CHECK(egress.empty() || egress.size() == fanouts.size());
  // Levels of one child are contracted: the smaller capacity stays.
  std::vector<int> counts;
  std::vector<Capacity> capacities;
  for (size_t level = 0; level < fanouts.size(); level++) {
    SENNIT_CHECK(fanouts[level] >= 1);
    Capacity capacity;
    if (!egress.empty() && egress[level] != 0) capacity = {egress[level], Provenance::declared};
    if (fanouts[level] > 1) {
      counts.push_back(fanouts[level]);
      capacities.push_back(capacity);
    } else if (!counts.empty()) {
      capacities.back() = smaller(capacities.back(), capacity);
    }
  }

  TierTree tree;
  tree.tiers.push_back({"rank"});
  for (size_t level = 1; level < counts.size(); level++)
    tree.tiers.push_back({fmt::format("tier{}", level)});
  tree.tiers.push_back({"root"});
  tree.groups.emplace_back();
  tree.groups[0].tier = static_cast<uint8_t>(counts.size());
  size_t begin = 0;
  for (size_t level = 0; level < counts.size(); level++) {
    const size_t end = tree.groups.size();
    for (size_t parent = begin; parent < end; parent++) {
      tree.groups[parent].first_child = static_cast<int32_t>(tree.groups.size());
      tree.groups[parent].children = counts[level];
      for (int c = 0; c < counts[level]; c++) {
        Group child;
        child.tier = static_cast<uint8_t>(counts.size() - level - 1);
        child.egress = child.ingress = capacities[level];
        tree.groups.push_back(child);
      }
    }
    begin = end;
  }
  tree.finish();
  return tree;
}

std::string TierTree::check() const {
  std::string wrong = check_shape(*this);
  return wrong.empty() ? check_order(*this) : wrong;
}

void TierTree::finish() {
  // Children come after their parents, so one pass backwards adds the sizes up and one forwards
  // hands the positions down.
  for (size_t i = groups.size(); i-- > 0;) {
    Group& group = groups[i];
    if (group.children == 0) {
      group.first_child = -1;
      group.size = 1;
      continue;
    }
    SENNIT_CHECK(group.first_child > static_cast<int32_t>(i) &&
                 index(group.first_child) + index(group.children) <= groups.size());
    group.size = 0;
    for (int32_t c = group.first_child; c < group.first_child + group.children; c++) {
      groups[index(c)].parent = static_cast<int32_t>(i);
      group.size += groups[index(c)].size;
    }
  }
  const size_t n = index(groups[0].size);
  groups[0].parent = -1;
  groups[0].first = 0;
  leaf_of_position.assign(n, -1);
  for (size_t i = 0; i < groups.size(); i++) {
    const Group& group = groups[i];
    if (group.children == 0) leaf_of_position[index(group.first)] = static_cast<int32_t>(i);
    int32_t position = group.first;
    for (int32_t c = group.first_child; c < group.first_child + group.children; c++) {
      groups[index(c)].first = position;
      position += groups[index(c)].size;
    }
  }
  if (rank_of_position.empty()) {
    rank_of_position.resize(n);
    for (size_t p = 0; p < n; p++) rank_of_position[p] = static_cast<int32_t>(p);
  }
  SENNIT_CHECK(rank_of_position.size() == n);
  position_of_rank.assign(n, -1);
  for (size_t p = 0; p < n; p++) {
    SENNIT_CHECK(rank_of_position[p] >= 0 && index(rank_of_position[p]) < n);
    position_of_rank[index(rank_of_position[p])] = static_cast<int32_t>(p);
  }
}

}  // namespace sennit
