// member_tree.cpp: see plan/groups/member_tree.hpp.
#include "plan/groups/member_tree.hpp"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit {
namespace {

class Restriction {
 public:
  Restriction(const TierTree& tree, std::vector<int> positions) : whole_(tree) {
    std::sort(positions.begin(), positions.end());
    result_.positions.assign(positions.begin(), positions.end());
    for (size_t t = 0; t < tree.tiers.size(); t++)
      if (tree.tiers[t].is_host()) host_tier_ = static_cast<int>(t);
  }

  MemberTree take() {
    std::vector<int> queue;  // groups of the whole tree; the place in it is the new index
    add(&queue, 0, -1);
    result_.tree.groups[0].egress = result_.tree.groups[0].ingress = Capacity();
    result_.tree.groups[0].planes = 1;
    for (size_t i = 0; i < queue.size(); i++) {
      const Group& from = whole_.groups[index(queue[i])];
      if (from.children == 0) continue;
      const size_t before = queue.size();
      for (int c = from.first_child; c < from.first_child + from.children; c++)
        if (members(c) > 0) add(&queue, c, static_cast<int>(i));
      result_.tree.groups[i].first_child = static_cast<int32_t>(before);
      result_.tree.groups[i].children = static_cast<int32_t>(queue.size() - before);
    }
    set_latencies();
    number_tiers();
    for (const int32_t p : result_.positions) {
      result_.tree.rank_of_position.push_back(
          static_cast<int32_t>(result_.tree.rank_of_position.size()));
      if (!whole_.home_plane.empty())
        result_.tree.home_plane.push_back(whole_.home_plane[index(p)]);
    }
    if (std::none_of(result_.tree.groups.begin(), result_.tree.groups.end(),
                     [](const Group& g) { return g.planes > 1; }))
      result_.tree.home_plane.clear();
    result_.tree.finish();
    return std::move(result_);
  }

 private:
  int members(int group) const {
    const Group& g = whole_.groups[index(group)];
    const auto from = std::lower_bound(result_.positions.begin(), result_.positions.end(), g.first);
    return static_cast<int>(std::lower_bound(from, result_.positions.end(), g.first + g.size) -
                            from);
  }

  // Within a host an unknown capacity is memory, and never the narrower one.
  Capacity both(const Capacity& inner, const Capacity& around, const Group& outer) const {
    return !inner.known() && outer.tier <= host_tier_ ? around : narrower(inner, around);
  }

  void add(std::vector<int>* queue, int at, int parent) {
    Group group = whole_.groups[index(at)];
    while (group.children > 0) {
      int only = -1;
      for (int c = group.first_child; only < 0; c++)
        if (members(c) > 0) only = c;
      if (members(only) < members(at)) break;
      Group inner = whole_.groups[index(only)];
      if (group.parent >= 0) {
        inner.egress = both(inner.egress, group.egress, group);
        inner.ingress = both(inner.ingress, group.ingress, group);
        inner.planes = std::min(inner.planes, group.planes);
        inner.up_ns += group.up_ns;
        inner.across_ns = group.across_ns;
        inner.up_declared |= group.up_declared;
      }
      // Ranks of one NUMA node are their host's children.
      if (group.tier == host_tier_ && inner.children > 0) {
        inner.tier = group.tier;
        inner.name = group.name;
      }
      inner.parent = group.parent;  // the root's mark stays
      if (inner.name.empty()) inner.name = group.name;
      group = inner;
      at = only;
    }
    group.parent = parent;
    queue->push_back(at);
    result_.tree.groups.push_back(std::move(group));
  }

  // Whether contract() made the tree of links that say their latency: else a group's latency is all
  // that is known.
  bool has_parts() const {
    return std::ranges::any_of(whole_.groups,
                               [](const Group& g) { return g.up_ns > 0 || g.across_ns > 0; });
  }

  // The farthest ranks of a group may be no members. What is unknown stays so, and NUMA nodes take
  // nothing, as contract() has it. By the tiers of the whole tree.
  void set_latencies() {
    std::vector<Group>& groups = result_.tree.groups;
    if (std::ranges::none_of(groups, [](const Group& g) { return g.latency_ns > 0; }) ||
        !has_parts())
      return;
    std::vector<uint64_t> depth_ns(groups.size(), 0);
    std::vector<bool> declared(groups.size(), false);  // by a link between hosts
    for (size_t i = groups.size(); i-- > 0;) {         // children come after their parents
      Group& group = groups[i];
      uint64_t first = 0, second = 0, across = 0;
      for (int c = group.first_child; c < group.first_child + group.children; c++) {
        const Group& child = groups[index(c)];
        const uint64_t reach = depth_ns[index(c)] + child.up_ns;
        second = std::max(second, std::min(first, reach));
        first = std::max(first, reach);
        across = std::max(across, child.across_ns);
        declared[i] = declared[i] || declared[index(c)] || child.up_declared;
      }
      if (group.latency_ns == 0 && group.tier < host_tier_) continue;
      depth_ns[i] = first;
      const bool known = group.latency_ns > 0 && (declared[i] || group.tier <= host_tier_);
      group.latency_ns = known ? first + second + across : 0;
    }
  }

  void number_tiers() {
    std::map<uint8_t, uint8_t> number = {{0, 0}};
    for (const Group& group : result_.tree.groups) number[group.tier] = 0;
    for (auto& [tier, to] : number) {
      to = static_cast<uint8_t>(result_.tiers.size());
      result_.tiers.push_back(tier);
      result_.tree.tiers.push_back(whole_.tiers[tier]);
    }
    for (Group& group : result_.tree.groups) group.tier = number[group.tier];
  }

  const TierTree& whole_;
  int host_tier_ = -1;
  MemberTree result_;
};

}  // namespace

// Tiers by name as well: what is within a host is shared memory.
std::string MemberTree::kind() const {
  std::string text = fmt::format("{:x}", tree.fingerprint());
  for (const Tier& tier : tree.tiers) text += " " + tier.name;
  return text;
}

MemberTree member_tree(const TierTree& tree, std::vector<int> positions) {
  return Restriction(tree, std::move(positions)).take();
}

}  // namespace sennit
