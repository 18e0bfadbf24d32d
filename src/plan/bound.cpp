// bound.cpp: the least time that any schedule can take for a Request on a TierTree.
//
// Three arguments, the largest wins. One group: what must leave or enter it, over its capacity. A
// partition of all ranks (all-reduce; hosts compute, no arithmetic in switches): per element n-1
// messages cross boundaries before any group has seen all inputs, and n-1 after, so 2(n-1)M over
// the sum of all capacities; by tier, and over the partition into groups of any tiers that binds
// most (Dinkelbach's iteration over the tree). Latency: where everyone's end depends on everyone's
// start, one message across the root. Only declared and measured capacities count. The bound is
// unknown if one that it needs is missing; what lies within a host is not needed, because leaving a
// cut out only lowers the bound. Exact integers; O(groups * tiers).
#include <algorithm>
#include <optional>

#include <fmt/core.h>

#include "base/index.hpp"
#include "plan/bound.hpp"
#include "plan/bound_cuts.hpp"

namespace sennit {
namespace {

using namespace cuts;  // NOLINT: this file and concurrent/bound.cpp are what it is for

class Bounds {
 public:
  Bounds(const Request& request, const TierTree& tree)
      : request_(request), tree_(tree), n_(index(tree.ranks())), largest_(tree) {
    const Wide element = type_bytes(request.type);
    before_.push_back(0);
    for (size_t i = 0; i < n_; i++)
      before_.push_back(before_.back() + element * request.count_of(static_cast<int>(i)));
    vector_ = element * request.count;
  }

  Bound run() {
    if (n_ < 2 || request_.collective == Collective::send_recv)
      return largest_.unknown("no bound for this call");
    if (request_.collective == Collective::all_to_all && request_.vector_variant)
      return largest_.unknown("no rank knows how much the others exchange");
    for (int group = static_cast<int>(tree_.groups.size()) - 1; group > 0; group--)
      largest_.offer_boundary(group, need_of(tree_.groups[index(group)]));
    if (request_.collective == Collective::all_reduce && vector_ > 0) {
      for (size_t tier = 0; tier + 1 < tree_.tiers.size(); tier++) consider_tier(tier);
      consider_any_partition(&Group::egress, "egress");
      consider_any_partition(&Group::ingress, "ingress");
    }
    if (!largest_.missing().empty()) return largest_.unknown(largest_.missing());
    consider_latency();
    if (!largest_.binds())
      return largest_.unknown(no_payload() ? "no data, and no latency known" : "no capacity known");
    return largest_.known();
  }

 private:
  bool no_payload() const { return before_.back() == 0; }

  Need need_of(const Group& g) const {
    const Whole all{&request_, n_, before_.back(), vector_};
    const bool root = request_.root >= g.first && request_.root < g.first + g.size;
    return need(all,
                {index(g.size), before_[index(g.first + g.size)] - before_[index(g.first)], root});
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
    largest_.offer(time_ns(bytes, std::min(out, in)), static_cast<int>(tier), -1, [&] {
      return fmt::format("{}: 2(n-1)M / sum of {}, n = {}", tree_.tiers[tier].name, side, groups);
    });
  }

  // The partition that maximises (n - 1) / sum: a better one than (a - 1) / b exists while some
  // partition has sum over groups of (b - (a - 1) U) > b.
  void consider_any_partition(Capacity Group::*side, const char* side_name) {
    struct Best {
      bool possible = false;
      __int128 gain = 0;
      Wide groups = 0, sum = 0;
      int tier = 0;
    };
    std::vector<Best> best(tree_.groups.size());
    Wide groups = 0, sum = 0;
    int tier = 0;
    for (__int128 p = 0, q = 1;;) {
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
        if (!split.possible || gain >= split.gain)
          best[i] = {true, gain, 1, (g.*side).bytes_per_s, g.tier};
      }
      if (!best[0].possible || best[0].gain <= q) break;
      groups = best[0].groups;
      sum = best[0].sum;
      tier = best[0].tier;
      p = static_cast<__int128>(groups - 1);
      q = static_cast<__int128>(sum);
    }
    if (sum == 0) return;
    largest_.offer(time_ns(2 * (groups - 1) * vector_, sum), tier, -1, [&] {
      return fmt::format("groups up to {}: 2(n-1)M / sum of {}, n = {}",
                         tree_.tiers[index(tier)].name, side_name, static_cast<uint64_t>(groups));
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
    largest_.offer(ns, tier, -1,
                   [] { return std::string("latency of one message across the root"); });
  }

  const Request& request_;
  const TierTree& tree_;
  const size_t n_;
  std::vector<Wide> before_;  // bytes of all blocks before block i
  Wide vector_ = 0;  // bytes of one block: the vector, or what all-to-all sends to one peer
  LargestTime largest_;
};

}  // namespace

Bound lower_bound(const Request& request, const TierTree& tree) {
  return Bounds(request, tree).run();
}

}  // namespace sennit
