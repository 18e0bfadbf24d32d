// alltoall_aggregated.cpp: all-to-all with the messages between groups put together by relays.
//
// Two rounds: within each group of a chosen tier, the ranks first hand the blocks for a destination
// outside to the one among them that relays for it; the relay then sends the destination one
// message with the blocks of its whole group. Rank d is relayed by the (d mod m)-th of a group of
// m, so relays share the load evenly, and between equal groups rank i talks to rank i. A rank sends
// about n/m + 2 m messages instead of n, m times as large on the scarce tiers, for moving its
// blocks once more within the group.
// Parameters: radices[0] is the tier (default: the lowest with a group of several ranks). On the
// wire: tiers of the groups and above the same as direct; within a group of m up to m (n - m)
// blocks more in all. Scratch: the blocks that pass a relay, n in all; in place also the m blocks
// that stay in the group. Applies to equal counts on trees with a group of several ranks below the
// root.
#include <algorithm>
#include <set>
#include <utility>

#include "collectives/common.hpp"
#include "collectives/visits.hpp"

namespace sennit {
namespace {

// Per position the group it belongs to: the highest group whose tier is not above `tier`.
std::vector<const Group*> groups_at(const TierTree& tree, int tier) {
  std::vector<const Group*> of(index(tree.ranks()));
  for (const Group& g : tree.groups) {
    const bool highest = g.parent < 0 || tree.groups[index(g.parent)].tier > tier;
    if (g.tier > tier || !highest) continue;
    std::fill_n(of.begin() + g.first, g.size, &g);
  }
  return of;
}

// Tiers that have a group of several ranks below the root, lowest first.
std::vector<uint16_t> useful_tiers(const TierTree& tree) {
  std::vector<bool> useful(tree.tiers.size(), false);
  for (size_t i = 1; i < tree.groups.size(); i++)
    if (tree.groups[i].size > 1) useful[tree.groups[i].tier] = true;
  std::vector<uint16_t> all;
  for (size_t t = 0; t < useful.size(); t++)
    if (useful[t] && t < tree.root().tier) all.push_back(static_cast<uint16_t>(t));
  return all;
}

int chosen_tier(const TierTree& tree, const Parameters& parameters) {
  const std::vector<uint16_t> useful = useful_tiers(tree);
  if (parameters.radices.empty()) return useful.empty() ? 0 : useful.front();
  return std::min<int>(parameters.radices[0], tree.root().tier - 1);
}

class Aggregated {
 public:
  Aggregated(const TierTree& tree, const Request& request, int tier)
      : tree_(tree),
        request_(request),
        n_(tree.ranks()),
        group_of_(groups_at(tree, tier)),
        visits_(tree) {}

  bool turns() const { return visits_.turns(); }
  const Visits& visits() const { return visits_; }

  Program program(int p) const {
    ProgramBuilder builder(request_.in_place);
    const Group& group = group_at(p);
    const int m = group.size;
    const auto tier = [&](int peer) { return tree_.crossing_tier(p, peer); };
    // In the group; a negative turn: who then visits.
    const auto neighbour = [&](int turn) {
      if (!turns()) return group.first + (p - group.first + turn + m) % m;
      return turn < 0 ? visits_.from(p, -turn) : visits_.to(p, turn);
    };

    // In the group: blocks for outside to their relays, then blocks for one another.
    const std::vector<int> relayed = relayed_by(p);
    std::vector<Range> passing;  // by destination, so that each message out is one run
    for (const int d : relayed)
      for (int s = group.first; s < group.first + m; s++) passing.push_back(slot_block(s, d));
    const Operand relay = builder.scratch(passing);
    std::vector<Operand> going(index(m));
    for (int i = 1; i < m; i++) going[index(i)] = outgoing(builder, p, neighbour(i));
    for (int i = 1; i < m; i++) {
      builder.send(neighbour(i), builder.input(blocks(relayed_by(neighbour(i)))),
                   tier(neighbour(i)));
      builder.recv(neighbour(-i), builder.part(relay, slot_blocks(neighbour(-i), relayed)),
                   tier(neighbour(-i)));
    }
    builder.copy(builder.part(relay, slot_blocks(p, relayed)), builder.input(blocks(relayed)));

    for (const int d : visited_from(p, relayed)) {
      std::vector<Range> from_group;
      for (int s = group.first; s < group.first + m; s++) from_group.push_back(slot_block(s, d));
      builder.send(d, builder.part(relay, from_group), tier(d));
    }
    for (const int from : relays_to(p)) {
      const Group& other = group_at(from);
      const auto begin = static_cast<uint64_t>(other.first);
      const Range range = block_range(begin, begin + static_cast<uint64_t>(other.size));
      builder.recv(from, builder.output({&range, 1}), tier(from));
    }
    for (int i = 1; i < m; i++) {
      builder.send(neighbour(i), going[index(i)], tier(neighbour(i)));
      const Range range = block(neighbour(-i));
      builder.recv(neighbour(-i), builder.output({&range, 1}), tier(neighbour(-i)));
    }
    copy_own(builder, request_, block(p));
    return builder.finish();
  }

 private:
  const Group& group_at(int position) const { return *group_of_[index(position)]; }
  static Range block(int i) {
    return block_range(static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1);
  }
  Range slot_block(int from, int to) const {
    const uint64_t b =
        static_cast<uint64_t>(from) * static_cast<uint64_t>(n_) + static_cast<uint64_t>(to);
    return block_range(b, b + 1);
  }

  // Destinations outside the group of `p` for which it relays.
  std::vector<int> relayed_by(int p) const {
    const Group& group = group_at(p);
    std::vector<int> all;
    for (int d = p - group.first; d < n_; d += group.size)
      if (d < group.first || d >= group.first + group.size) all.push_back(d);
    return all;
  }
  // These in the order in which `p` sends to them: not all ranks begin with the same.
  std::vector<int> visited_from(int p, std::vector<int> relayed) const {
    if (!turns()) {
      const auto behind = std::upper_bound(relayed.begin(), relayed.end(), p);
      std::rotate(relayed.begin(), behind, relayed.end());
      return relayed;
    }
    relayed.clear();
    const int m = group_at(p).size;
    for (int turn = m; turn < n_; turn += m) relayed.push_back(visits_.to(p, turn));
    return relayed;
  }
  // The relays of all other groups for `p`.
  std::vector<int> relays_to(int p) const {
    std::vector<int> relays;
    const int m = group_at(p).size;
    for (int turn = m; turns() && turn < n_; turn += m) relays.push_back(visits_.from(p, turn));
    for (int first = 0; !turns() && first < n_; first += group_at(first).size)
      if (&group_at(first) != &group_at(p)) relays.push_back(first + p % group_at(first).size);
    return relays;
  }
  static std::vector<Range> blocks(const std::vector<int>& which) {
    std::vector<Range> ranges;
    ranges.reserve(which.size());
    for (const int d : which) ranges.push_back(block(d));
    return ranges;
  }
  std::vector<Range> slot_blocks(int from, const std::vector<int>& to) const {
    std::vector<Range> ranges;
    ranges.reserve(to.size());
    for (const int d : to) ranges.push_back(slot_block(from, d));
    return ranges;
  }

  // The block for a rank of the own group; in place a copy, because the answer may come first.
  Operand outgoing(ProgramBuilder& builder, int p, int to) const {
    const Range range = block(to);
    const Operand source = builder.input({&range, 1});
    if (!request_.in_place) return source;
    const Range copied_range = slot_block(p, to);
    const Operand copied = builder.scratch({&copied_range, 1});
    builder.copy(copied, source);
    return copied;
  }

  const TierTree& tree_;
  const Request& request_;
  const int n_;
  const std::vector<const Group*> group_of_;
  const Visits visits_;
};

struct Traffic {
  Load load;
  uint64_t messages = 0, most_messages = 0;  // by all, by the busiest rank
  std::vector<int> kinds;  // a position of each group size and number of relayed destinations
};

// `group_of`: groups_at(tree, tier).
Traffic traffic_of(const TierTree& tree, const Request& request, int tier,
                   const std::vector<const Group*>& group_of) {
  const auto n = static_cast<uint64_t>(tree.ranks());
  const uint64_t bytes = block_bytes(request, 0);
  Traffic traffic{Load(tree), 0, 0, {}};
  std::vector<uint64_t> relayed(n + 1, 0);  // destinations relayed by positions [0, p)
  std::vector<uint64_t> groups(n + 1, 0);   // that begin there
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (size_t p = 0; p < n; p++) {
    const auto m = static_cast<uint64_t>(group_of[p]->size);
    const uint64_t own = (n - 1 - (p - static_cast<uint64_t>(group_of[p]->first))) / m;
    relayed[p + 1] = relayed[p] + own;
    groups[p + 1] = groups[p] + (group_of[p]->first == static_cast<int32_t>(p) ? 1 : 0);
    traffic.most_messages = std::max(traffic.most_messages, 2 * (m - 1) + own);
    // nobody hands anything to who relays nothing
    traffic.messages += (own > 0 ? 2 : 1) * (m - 1) + own;
    if (seen.emplace(m, own).second) traffic.kinds.push_back(static_cast<int>(p));
  }
  for (size_t i = 1; i < tree.groups.size(); i++) {
    const Group& g = tree.groups[i];
    const auto size = static_cast<uint64_t>(g.size), first = static_cast<uint64_t>(g.first);
    const auto m = static_cast<uint64_t>(group_of[first]->size);
    uint64_t out = size * (n - size), in = out;
    // A message for each destination of a relay, and from each group outside.
    const uint64_t relays = relayed[first + size] - relayed[first];
    uint64_t messages_out = scaled(relays, n - size, std::max<uint64_t>(1, n - m));
    uint64_t messages_in = size * (groups[n] - groups[first + size] + groups[first]);
    // to and from the rest of its group, to relays there, and as a relay to outside
    if (g.tier <= tier) {
      out = size * (m - size) + size * (n - m - relays) + relays * m;
      in = size * (m - size) + (m - size) * relays + size * (n - m);
      messages_out = relays + 2 * size * (m - size);
      messages_in = size * (groups[n] - 1) + 2 * size * (m - size);
    }
    traffic.load.add_boundary(i, {out * bytes, messages_out}, {in * bytes, messages_in});
  }
  return traffic;
}

class AggregatedAlgorithm : public Algorithm {
 public:
  std::string_view name() const override { return "aggregated"; }
  Takes takes(Collective) const override { return {.radices = 1, .least_radix = 0}; }
  bool applies(const TierTree& tree, const Request& request) const override {
    return request.collective == Collective::all_to_all && !request.vector_variant &&
           request.counts.empty() && !useful_tiers(tree).empty();
  }
  std::vector<Parameters> candidates(const TierTree& tree, const Request&) const override {
    std::vector<Parameters> all;
    for (const uint16_t tier : useful_tiers(tree)) {
      Parameters parameters;
      parameters.radices = {tier};
      all.push_back(parameters);
    }
    return all;
  }

  Estimate estimate(const TierTree& tree, const Request& request, const Parameters& parameters,
                    const CostModel& cost) const override {
    const int tier = chosen_tier(tree, parameters);
    const std::vector<const Group*> group_of = groups_at(tree, tier);
    Traffic traffic = traffic_of(tree, request, tier, group_of);
    Estimate estimate;
    estimate.messages = traffic.most_messages;
    estimate.posted_at_once = true;  // but for what is passed on, which waits for a few
    traffic.load.set_times(cost, &estimate);
    // A group of one rank has nothing to pass on. Where ranks wait for a core, what is passed on
    // does as well, and that is counted with the messages.
    const auto around = [&](const Group& group) {
      return tree.common_group(group.first, group.first + group.size - 1);
    };
    const auto slower = [&](const Group& a, const Group& b) {
      return planning_latency_ns(tree, around(a), cost) >
             planning_latency_ns(tree, around(b), cost);
    };
    const Group* inside = nullptr;
    int largest = 1;
    const Group* before = nullptr;  // a group's ranks stand together
    for (const Group* group : group_of) {
      if (std::exchange(before, group) == group) continue;
      largest = std::max(largest, group->size);
      if (group->size > 1 && !cost.shared_cores.crowded() && (!inside || slower(*group, *inside)))
        inside = group;
    }
    // A relay is handed the blocks for every m-th rank outside, and hands on those of m ranks.
    const uint64_t block = block_bytes(request, 0);
    add_latency(tree, 0, 1, index(largest) * block, cost, &estimate);
    if (inside)
      add_latency(tree, around(*inside), 1,
                  divided_up(index(tree.ranks() - inside->size), index(inside->size)) * block, cost,
                  &estimate);
    return estimate;
  }

  SharedCoresEstimate on_shared_cores(const TierTree& tree, const Request& request,
                                      const Parameters& parameters, const CostModel& cost,
                                      const Estimate&) const override {
    const int tier = chosen_tier(tree, parameters);
    return {.way_ns = traffic_of(tree, request, tier, groups_at(tree, tier)).load.way_ns(cost)};
  }

  std::optional<Counts> count(const TierTree& tree, const Request& request,
                              const Parameters& parameters) const override {
    if (block_bytes(request, 0) == 0) return std::nullopt;
    const int tier = chosen_tier(tree, parameters);
    Traffic traffic = traffic_of(tree, request, tier, groups_at(tree, tier));
    return Counts{traffic.load.tier_bytes(), traffic.messages, 2, traffic.kinds};
  }

  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters& parameters) const override {
    const auto common =
        std::make_shared<const Aggregated>(tree, request, chosen_tier(tree, parameters));
    return make_blueprint([common](int position) { return common->program(position); },
                          common->turns() ? std::optional(common->visits()) : std::nullopt);
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(AggregatedAlgorithm)

}  // namespace sennit
