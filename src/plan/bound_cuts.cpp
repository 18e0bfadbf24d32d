// bound_cuts.cpp: what must cross a boundary, and the largest of the times that follow. See
// plan/bound_cuts.hpp.
#include "plan/bound_cuts.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "base/index.hpp"

namespace sennit::cuts {

uint64_t time_ns(Wide bytes, Wide bytes_per_s) {
  const Wide ns = divided_up(bytes * kNsPerSecond, bytes_per_s);
  return ns > ~uint64_t{0} ? ~uint64_t{0} : static_cast<uint64_t>(ns);
}

Need need(const Whole& all, const Share& own) {
  const Wide rest = all.bytes - own.bytes;
  switch (all.request->collective) {
    case Collective::all_reduce:
      return {all.vector, all.vector};
    case Collective::broadcast:
      return own.root ? Need{all.vector, 0} : Need{0, all.vector};
    case Collective::reduce:
      return own.root ? Need{0, all.vector} : Need{all.vector, 0};
    case Collective::all_gather:
      return {own.bytes, rest};
    case Collective::reduce_scatter:
      return {rest, own.bytes};
    case Collective::gather:
      return own.root ? Need{0, rest} : Need{own.bytes, 0};
    case Collective::scatter:
      return own.root ? Need{rest, 0} : Need{0, own.bytes};
    case Collective::all_to_all: {
      const Wide pairs = own.members * (all.members - own.members);
      return {all.vector * pairs, all.vector * pairs};
    }
    case Collective::barrier:
    case Collective::send_recv:
      break;
  }
  return {};
}

LargestTime::LargestTime(const TierTree& tree) : tree_(tree) {
  within_host_.assign(tree.groups.size(), false);
  for (size_t g = 1; g < tree.groups.size(); g++) {  // parents come first
    const size_t parent = index(tree.groups[g].parent);
    within_host_[g] = within_host_[parent] || tree.tiers[tree.groups[parent].tier].is_host();
  }
  bound_.tier_ns.assign(tree.tiers.size(), 0);
}

Bound LargestTime::known() {
  bound_.known = true;
  return bound_;
}

Bound LargestTime::unknown(std::string why) {
  bound_.known = false;
  bound_.time_ns = 0;
  bound_.binding_tier = bound_.binding_group = -1;
  bound_.why = std::move(why);
  return bound_;
}

std::string LargestTime::group_text(int group) const {
  const Group& g = tree_.groups[index(group)];
  return g.name.empty() ? fmt::format("{} of positions {}-{}", tree_.tiers[g.tier].name, g.first,
                                      g.first + g.size - 1)
                        : fmt::format("{} {}", tree_.tiers[g.tier].name, g.name);
}

void LargestTime::offer(uint64_t ns, int tier, int group, const std::function<std::string()>& why) {
  uint64_t& of_tier = bound_.tier_ns[index(tier)];
  of_tier = std::max(of_tier, ns);
  if (ns == bound_.time_ns && tier == bound_.binding_tier && group >= 0 &&
      bound_.binding_group >= 0 && group != bound_.binding_group) {
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

void LargestTime::offer_boundary(int group, const Need& bytes, const std::string& of_what) {
  const Group& g = tree_.groups[index(group)];
  const auto consider = [&](Wide amount, const Capacity& capacity, const char* side) {
    if (amount == 0) return;
    if (!usable(capacity)) {
      if (!within_host_[index(group)])
        missing_ = fmt::format("{}: {} is {}", group_text(group), side, name(capacity.provenance));
      return;
    }
    offer(time_ns(amount, capacity.bytes_per_s), g.tier, group, [&] {
      reason_ = fmt::format("{} bytes over its {}{}", static_cast<uint64_t>(amount), side, of_what);
      return fmt::format("{}: {}", group_text(group), reason_);
    });
  };
  consider(bytes.out, g.egress, "egress");
  consider(bytes.in, g.ingress, "ingress");
}

}  // namespace sennit::cuts
