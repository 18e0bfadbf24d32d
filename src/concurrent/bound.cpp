// The least time of a set of process groups. Three arguments, the largest wins.
//
// One boundary: what every process group with members on both sides must carry over it, added up,
// over its capacity. One tier: its groups fall apart into components that share no process group;
// in each, all that must cross the boundaries (2(n-1)M for an all-reduce over n of them, (n-1)M for
// an all-gather) over the sum of their capacities. One process group: lower_bound() of it alone,
// for partitions over several tiers and latency. Only declared and measured capacities count, as in
// plan/bound.cpp.
#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "concurrent/concurrent.hpp"
#include "plan/bound.hpp"
#include "plan/bound_cuts.hpp"

namespace sennit {
namespace {

using namespace cuts;  // NOLINT: this file and plan/bound.cpp are what it is for

// What must cross boundaries in all where the members are in `parts`.
Wide crossing(const Whole& all, const std::vector<Share>& parts) {
  const Wide others = parts.size() - 1;
  switch (all.request->collective) {
    case Collective::all_reduce:
      return 2 * others * all.vector;
    case Collective::broadcast:
    case Collective::reduce:
      return others * all.vector;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return others * all.bytes;
    default:
      break;
  }
  Wide out = 0, in = 0;
  for (const Share& part : parts) {
    out += need(all, part).out;
    in += need(all, part).in;
  }
  return std::max(out, in);
}

class SetBounds {
 public:
  SetBounds(const TierTree& tree, std::span<const ConcurrentCall> calls)
      : tree_(tree), calls_(calls), load_(tree.groups.size()), held_(tree), largest_(tree) {
    tiers_.resize(tree.tiers.size() - 1);
    for (Components& tier : tiers_) {
      tier.joined.resize(tree.groups.size());
      std::iota(tier.joined.begin(), tier.joined.end(), 0);
      tier.bytes.assign(tree.groups.size(), 0);
      tier.touched.assign(tree.groups.size(), false);
    }
  }

  Bound run() {
    for (const ConcurrentCall& call : calls_) {
      if (call.request.collective == Collective::send_recv)
        return largest_.unknown("no bound for send and recv: say broadcast in groups of two");
      if (call.request.collective == Collective::all_to_all && call.request.vector_variant)
        return largest_.unknown("no rank knows how much the others exchange");
      for (const std::vector<int>& group : call.groups)
        if (group.size() > 1) add(call.request, group);
    }
    for (int group = static_cast<int>(tree_.groups.size()) - 1; group > 0; group--)
      consider_boundary(group);
    if (!largest_.missing().empty()) return largest_.unknown(largest_.missing());
    for (size_t tier = 0; tier < tiers_.size(); tier++) consider_tier(tier);
    for (const Bound& alone : alone_) consider_alone(alone);
    if (!largest_.binds()) return largest_.unknown("nothing to carry, or no capacity known");
    return largest_.known();
  }

 private:
  struct Load {
    Need bytes;
    uint64_t process_groups = 0;  // with members on both sides
  };
  struct Components {  // of a tier's groups, and of what is not in one by the widest group below it
    std::vector<int> joined;
    std::vector<Wide> bytes;  // must cross boundaries, by component
    std::vector<bool> touched;
    int find(int g) {
      while (joined[index(g)] != g) g = joined[index(g)] = joined[index(joined[index(g)])];
      return g;
    }
  };

  void add(const Request& request, const std::vector<int>& group) {
    std::vector<int> members = group;
    std::sort(members.begin(), members.end());
    const Whole all = held_.take(request, members);
    held_.each_boundary(all, [&](int g, const Need& bytes) {
      load_[index(g)].bytes.out += bytes.out;
      load_[index(g)].bytes.in += bytes.in;
      load_[index(g)].process_groups++;
    });
    for (size_t tier = 0; tier < tiers_.size(); tier++) add_parts(all, tier);
    note_alone(request, members);
  }

  void add_parts(const Whole& all, size_t tier) {
    Components& components = tiers_[tier];
    std::vector<Share> parts;
    int first = -1;
    for (const int g : held_.groups()) {
      const Group& group = tree_.groups[index(g)];
      if (group.parent < 0 || group.tier > tier || tree_.groups[index(group.parent)].tier <= tier)
        continue;
      if (held_.share(g).members == all.members) return;  // nothing crosses
      components.touched[index(g)] = true;
      parts.push_back(held_.share(g));
      if (first < 0)
        first = components.find(g);
      else if (const int other = components.find(g); other != first) {
        components.joined[index(other)] = first;
        components.bytes[index(first)] += components.bytes[index(other)];
      }
    }
    components.bytes[index(first)] += crossing(all, parts);
  }

  // Groups of one shape and request have one bound.
  void note_alone(const Request& request, const std::vector<int>& members) {
    const MemberTree sub = member_tree(tree_, members);
    std::vector<const Request*>& known = known_[sub.kind()];
    for (const Request* other : known)
      if (*other == request) return;
    known.push_back(&request);
    Bound alone = lower_bound(request, sub.tree);
    if (!alone.known) return;
    alone.binding_tier = sub.tiers[index(alone.binding_tier)];
    alone_.push_back(std::move(alone));
  }

  void consider_boundary(int group) {
    const Load& load = load_[index(group)];
    if (load.process_groups == 0) return;
    largest_.offer_boundary(group, load.bytes,
                            fmt::format(", of {} process group{}", load.process_groups,
                                        load.process_groups == 1 ? "" : "s"));
  }

  void consider_tier(size_t tier) {
    struct Sum {
      Wide out = 0, in = 0;
      uint64_t groups = 0;
      bool whole = true, present = false;
    };
    std::map<int, Sum> sums;
    Components& components = tiers_[tier];
    for (size_t g = 1; g < tree_.groups.size(); g++) {
      if (!components.touched[g]) continue;
      const Group& group = tree_.groups[g];
      Sum& sum = sums[components.find(static_cast<int>(g))];
      sum.whole = sum.whole && usable(group.egress) && usable(group.ingress);
      sum.present = sum.present || group.tier == tier;
      sum.out += group.egress.bytes_per_s;
      sum.in += group.ingress.bytes_per_s;
      sum.groups++;
    }
    for (const auto& [component, sum] : sums) {
      const Wide bytes = components.bytes[index(component)];
      if (!sum.whole || !sum.present || bytes == 0) continue;
      largest_.offer(time_ns(bytes, std::min(sum.out, sum.in)), static_cast<int>(tier), -1,
                     [&, &sum = sum] {
                       return fmt::format("{}: {} bytes between {} of them / sum of {}",
                                          tree_.tiers[tier].name, static_cast<uint64_t>(bytes),
                                          sum.groups, sum.out <= sum.in ? "egress" : "ingress");
                     });
    }
  }

  void consider_alone(const Bound& alone) {
    largest_.offer(alone.time_ns, alone.binding_tier, -1,
                   [&] { return "a process group alone: " + alone.why; });
  }

  const TierTree& tree_;
  const std::span<const ConcurrentCall> calls_;
  std::vector<Load> load_;         // by group of the tree
  Held held_;                      // by the process group that is being added
  std::vector<Components> tiers_;  // by tier
  std::unordered_map<std::string, std::vector<const Request*>> known_;
  std::vector<Bound> alone_;
  LargestTime largest_;
};

}  // namespace

Status check_calls(const TierTree& tree, std::span<const ConcurrentCall> calls) {
  std::vector<size_t> seen(index(tree.ranks()), 0);
  size_t number = 0;
  for (size_t c = 0; c < calls.size(); c++) {
    const Request& request = calls[c].request;
    const auto wrong = [&](size_t g, const std::string& what) {
      return invalid(
          fmt::format("call {} ({}), group {}: {}", c, name(request.collective), g, what));
    };
    if (request.collective == Collective::send_recv)
      return {SENNIT_UNSUPPORTED,
              fmt::format("call {}: send and recv have no schedule: say broadcast in groups of two",
                          c)};
    if (request.vector_variant && request.counts.empty())
      return {SENNIT_UNSUPPORTED, fmt::format("call {}: {} with counts that no rank knows", c,
                                              name(request.collective))};
    for (size_t g = 0; g < calls[c].groups.size(); g++) {
      const std::vector<int>& group = calls[c].groups[g];
      number++;
      for (const int p : group) {
        if (p < 0 || p >= tree.ranks())
          return wrong(g, fmt::format("position {} of {} ranks", p, tree.ranks()));
        if (seen[index(p)] == number) return wrong(g, fmt::format("position {} twice", p));
        seen[index(p)] = number;
      }
      if (!request.counts.empty() && request.counts.size() != group.size())
        return wrong(g, fmt::format("{} counts for {} ranks", request.counts.size(), group.size()));
      if (has_root(request.collective) && (request.root < 0 || index(request.root) >= group.size()))
        return wrong(g, fmt::format("root {} of {} ranks", request.root, group.size()));
    }
  }
  return {};
}

Bound set_bound(const TierTree& tree, std::span<const ConcurrentCall> calls) {
  return SetBounds(tree, calls).run();
}

}  // namespace sennit
