// bound.cpp: the least time that any schedule can take for a Request on a TierTree.
//
// Three arguments, the largest wins. One group: what must leave or enter it, over its capacity. A partition
// of all ranks (all-reduce; hosts compute, no arithmetic in switches): per element n-1 messages cross
// boundaries before any group has seen all inputs, and n-1 after, so 2(n-1)M over the sum of all capacities;
// by tier, and over the partition into groups of any tiers that binds most (Dinkelbach's iteration over the
// tree). Latency: where everyone's end depends on everyone's start, one message across the root. Only
// declared and measured capacities count. The bound is unknown if one that it needs is missing; what lies
// within a host is not needed, because leaving a cut out only lowers the bound. Exact integers; O(groups *
// tiers).
#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "plan.hpp"

namespace sennit {
namespace {

using Wide = unsigned __int128;
size_t index(int i) { return static_cast<size_t>(i); }
bool usable(const Capacity& c) {
  return c.known() && (c.provenance == Provenance::declared || c.provenance == Provenance::measured);
}

// Rounded up, and never more than the largest time there is.
uint64_t time_ns(Wide bytes, Wide bytes_per_s) {
  const Wide ns = (bytes * 1'000'000'000 + bytes_per_s - 1) / bytes_per_s;
  return ns > ~uint64_t{0} ? ~uint64_t{0} : static_cast<uint64_t>(ns);
}

struct Need {  // bytes that must cross a group's boundary
  Wide out = 0, in = 0;
};

class Bounds {
 public:
  Bounds(const Request& request, const TierTree& tree)
      : request_(request), tree_(tree), n_(index(tree.ranks())) {
    const Wide element = type_bytes(request.type);
    before_.push_back(0);
    for (size_t i = 0; i < n_; i++)
      before_.push_back(before_.back() + element * request.count_of(static_cast<int>(i)));
    vector_ = element * request.count;
    within_host_.assign(tree.groups.size(), false);
    for (size_t g = 1; g < tree.groups.size(); g++) {  // parents come first
      const size_t parent = index(tree.groups[g].parent);
      within_host_[g] = within_host_[parent] || tree.tiers[tree.groups[parent].tier].name == "host";
    }
    bound_.tier_ns.assign(tree.tiers.size(), 0);
  }

  Bound run() {
    if (n_ < 2 || request_.collective == Collective::send_recv) return unknown("no bound for this call");
    if (request_.collective == Collective::all_to_all && request_.vector_variant)
      return unknown("no rank knows how much the others exchange");
    bound_.known = true;
    for (int group = static_cast<int>(tree_.groups.size()) - 1; group > 0; group--) consider_group(group);
    if (request_.collective == Collective::all_reduce && vector_ > 0) {
      for (size_t tier = 0; tier + 1 < tree_.tiers.size(); tier++) consider_tier(tier);
      consider_any_partition(&Group::egress, "egress");
      consider_any_partition(&Group::ingress, "ingress");
    }
    if (!missing_.empty()) return unknown(missing_);
    consider_latency();
    if (bound_.binding_tier < 0)
      return unknown(no_payload() ? "no data, and no latency known" : "no capacity known");
    return bound_;
  }

 private:
  Bound unknown(std::string why) {
    bound_.known = false;
    bound_.time_ns = 0;
    bound_.binding_tier = bound_.binding_group = -1;
    bound_.why = std::move(why);
    return bound_;
  }
  bool no_payload() const { return before_.back() == 0; }

  Need need(const Group& g) const {
    const Wide all = before_.back(), own = before_[index(g.first + g.size)] - before_[index(g.first)];
    const bool root = request_.root >= g.first && request_.root < g.first + g.size;
    const Wide inside = index(g.size), outside = n_ - inside;
    switch (request_.collective) {
      case Collective::all_reduce:
        return {vector_, vector_};
      case Collective::broadcast:
        return root ? Need{vector_, 0} : Need{0, vector_};
      case Collective::reduce:
        return root ? Need{0, vector_} : Need{vector_, 0};
      case Collective::all_gather:
        return {own, all - own};
      case Collective::reduce_scatter:
        return {all - own, own};
      case Collective::gather:
        return root ? Need{0, all - own} : Need{own, 0};
      case Collective::scatter:
        return root ? Need{all - own, 0} : Need{0, own};
      case Collective::all_to_all:
        return {vector_ * inside * outside, vector_ * inside * outside};
      case Collective::barrier:
      case Collective::send_recv:
        break;
    }
    return {};
  }

  std::string group_text(int group) const {
    const Group& g = tree_.groups[index(group)];
    return g.name.empty()
               ? fmt::format("{} of positions {}-{}", tree_.tiers[g.tier].name, g.first, g.first + g.size - 1)
               : fmt::format("{} {}", tree_.tiers[g.tier].name, g.name);
  }

  // Wider tiers win ties, so that the scarcer resource is named; a group that is not alone binds with its
  // tier.
  void offer(uint64_t ns, int tier, int group, const std::function<std::string()>& why) {
    uint64_t& of_tier = bound_.tier_ns[index(tier)];
    of_tier = std::max(of_tier, ns);
    if (ns == bound_.time_ns && tier == bound_.binding_tier && group >= 0 && bound_.binding_group >= 0 &&
        group != bound_.binding_group) {
      bound_.binding_group = -1;
      bound_.why = fmt::format("each {}: {}", tree_.tiers[index(tier)].name, reason_);
      return;
    }
    if (ns < bound_.time_ns || (ns == bound_.time_ns && tier <= bound_.binding_tier)) return;
    bound_.time_ns = ns;
    bound_.binding_tier = tier;
    bound_.binding_group = group;
    bound_.why = why();
  }

  void consider_group(int group) {
    const Group& g = tree_.groups[index(group)];
    const Need bytes = need(g);
    const auto consider = [&](Wide amount, const Capacity& capacity, const char* side) {
      if (amount == 0) return;
      if (!usable(capacity)) {
        if (!within_host_[index(group)])
          missing_ = fmt::format("{}: {} is {}", group_text(group), side, name(capacity.provenance));
        return;
      }
      offer(time_ns(amount, capacity.bytes_per_s), g.tier, group, [&] {
        reason_ = fmt::format("{} bytes over its {}", static_cast<uint64_t>(amount), side);
        return fmt::format("{}: {}", group_text(group), reason_);
      });
    };
    consider(bytes.out, g.egress, "egress");
    consider(bytes.in, g.ingress, "ingress");
  }

  // Groups of this tier, and what is not in one by the widest group below it.
  void consider_tier(size_t tier) {
    Wide out = 0, in = 0;
    uint64_t groups = 0;
    bool whole = true, present = false;
    std::vector<int> open = {0};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      const Group& g = tree_.groups[index(at)];
      if (at == 0 || g.tier > tier) {
        for (int c = 0; c < g.children; c++) open.push_back(g.first_child + c);
        continue;
      }
      whole = whole && usable(g.egress) && usable(g.ingress);
      present = present || g.tier == tier;
      out += g.egress.bytes_per_s;
      in += g.ingress.bytes_per_s;
      groups++;
    }
    if (!whole || !present) return;
    const Wide bytes = Wide{2} * (groups - 1) * vector_;
    const char* side = out <= in ? "egress" : "ingress";
    offer(time_ns(bytes, std::min(out, in)), static_cast<int>(tier), -1, [&] {
      return fmt::format("{}: 2(n-1)M / sum of {}, n = {}", tree_.tiers[tier].name, side, groups);
    });
  }

  // The partition that maximises (n - 1) / sum: a better one than (a - 1) / b exists while some partition has
  // sum over groups of (b - (a - 1) U) > b.
  void consider_any_partition(Capacity Group::*side, const char* side_name) {
    Wide groups = 0, sum = 0;
    int tier = 0;
    for (__int128 p = 0, q = 1;;) {
      struct Best {
        bool possible = false;
        __int128 gain = 0;
        Wide groups = 0, sum = 0;
        int tier = 0;
      };
      std::vector<Best> best(tree_.groups.size());
      for (size_t i = tree_.groups.size(); i-- > 0;) {  // children before parents
        const Group& g = tree_.groups[i];
        Best split;
        split.possible = g.children > 0;
        for (int c = 0; c < g.children; c++) {
          const Best& child = best[index(g.first_child + c)];
          split.possible = split.possible && child.possible;
          split.gain += child.gain;
          split.groups += child.groups;
          split.sum += child.sum;
          split.tier = std::max(split.tier, child.tier);
        }
        best[i] = split;
        if (i == 0 || !usable(g.*side)) continue;
        const __int128 gain = q - p * static_cast<__int128>((g.*side).bytes_per_s);
        if (!split.possible || gain >= split.gain) best[i] = {true, gain, 1, (g.*side).bytes_per_s, g.tier};
      }
      if (!best[0].possible || best[0].gain <= q) break;
      groups = best[0].groups;
      sum = best[0].sum;
      tier = best[0].tier;
      p = static_cast<__int128>(groups - 1);
      q = static_cast<__int128>(sum);
    }
    if (sum == 0) return;
    offer(time_ns(2 * (groups - 1) * vector_, sum), tier, -1, [&] {
      return fmt::format("groups up to {}: 2(n-1)M / sum of {}, n = {}", tree_.tiers[index(tier)].name,
                         side_name, static_cast<uint64_t>(groups));
    });
  }

  void consider_latency() {
    const uint64_t ns = tree_.root().latency_ns;
    const bool rooted =
        request_.collective == Collective::broadcast || request_.collective == Collective::reduce ||
        request_.collective == Collective::gather || request_.collective == Collective::scatter;
    if (rooted || ns == 0 || (no_payload() && request_.collective != Collective::barrier)) return;
    int tier = 0;
    for (int c = 0; c < tree_.root().children; c++)
      tier = std::max<int>(tier, tree_.groups[index(tree_.root().first_child + c)].tier);
    offer(ns, tier, -1, [] { return std::string("latency of one message across the root"); });
  }

  const Request& request_;
  const TierTree& tree_;
  const size_t n_;
  std::vector<Wide> before_;  // bytes of all blocks before block i
  Wide vector_ = 0;           // bytes of one block: the vector, or what all-to-all sends to one peer
  std::vector<bool> within_host_;
  std::string missing_, reason_;
  Bound bound_;
};

}  // namespace

Bound lower_bound(const Request& request, const TierTree& tree) { return Bounds(request, tree).run(); }

}  // namespace sennit
