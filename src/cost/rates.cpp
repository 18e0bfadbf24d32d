// rates.cpp: see cost/rates.hpp.
#include "cost/rates.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/index.hpp"

namespace sennit {
namespace {

constexpr uint64_t kScarcity = 4;

// The tier of hosts, or -1 where no tier is called that (every host then has one rank, or nobody
// knows).
int host_tier(const TierTree& tree) {
  for (size_t i = 0; i < tree.tiers.size(); i++)
    if (tree.tiers[i].is_host()) return static_cast<int>(i);
  return -1;
}

// A host that is alone in its rack has that one's capacity, where the host's own is unknown, and
// the other way round. Then it is a guess.
bool is_guess(const TierTree& tree, const Group& group, const Capacity& side, int hosts) {
  return side.provenance == Provenance::assumed &&
         static_cast<int>(tree.groups[index(group.parent)].tier) > hosts + 1;
}

// f(group) for each that sends over the network: of hosts alone, or of groups of them as well.
template <typename F>
void for_each_in_network(const TierTree& tree, bool hosts_alone, F&& f) {
  const int inside = host_tier(tree), hosts = lowest_network_tier(tree);
  for (const Group& group : tree.groups)
    if (group.parent >= 0 && static_cast<int>(tree.groups[index(group.parent)].tier) > inside &&
        (!hosts_alone || static_cast<int>(group.tier) <= hosts))
      f(group);
}

uint64_t nic_rate(const TierTree& tree, const CostModel& cost) {
  const int hosts = lowest_network_tier(tree);
  uint64_t slowest = ~uint64_t{0};
  for_each_in_network(tree, true, [&](const Group& host) {
    for (const Capacity& side : {host.egress, host.ingress})
      if (side.known() && !is_guess(tree, host, side, hosts))
        slowest = std::min(slowest, side.bytes_per_s);
  });
  return slowest == ~uint64_t{0} ? cost.nic_bytes_per_s : slowest;
}

// Of one direction: what is left of so much, a quarter for each of these tiers.
uint64_t scarce(Wide bytes_per_s, int from_tier, int parent_tier) {
  for (int tier = from_tier; tier < parent_tier; tier++) bytes_per_s /= kScarcity;
  return std::max<uint64_t>(1, saturated(bytes_per_s));
}

bool all_known(const TierTree& tree, bool hosts_alone) {
  bool known = true;
  for_each_in_network(tree, hosts_alone, [&](const Group& group) {
    known = known && group.egress.known() && group.ingress.known();
  });
  return known;
}

}  // namespace

int lowest_network_tier(const TierTree& tree) { return std::max(host_tier(tree), 0); }

GroupRates planning_rates(const TierTree& tree, const CostModel& cost) {
  const int inside = host_tier(tree), hosts = lowest_network_tier(tree);
  const uint64_t nic = nic_rate(tree, cost);
  GroupRates rates;
  rates.egress.assign(tree.groups.size(), 0);
  rates.ingress = rates.egress;
  for (size_t i = tree.groups.size(); i-- > 1;) {  // children come after their parents
    const Group& group = tree.groups[i];
    const int parent_tier = tree.groups[index(group.parent)].tier;
    // A quarter once for a group of hosts, and once for every tier in which a group is alone: a
    // rack of one host is that host, and its uplink no less scarce than the other racks'.
    const int from = std::max<int>(group.tier, hosts + 1);
    const auto rate = [&](const Capacity& side, const std::vector<uint64_t>& below) -> uint64_t {
      if (side.known() && !is_guess(tree, group, side, hosts)) return side.bytes_per_s;
      if (parent_tier <= inside) return cost.reduce_bytes_per_s;
      Wide sent = side.known() ? side.bytes_per_s : nic;
      if (static_cast<int>(group.tier) > hosts) {
        sent = 0;
        for (int32_t c = group.first_child; c < group.first_child + group.children; c++)
          sent += below[index(c)];
      }
      return scarce(sent, from, parent_tier);
    };
    rates.egress[i] = rate(group.egress, rates.egress);
    rates.ingress[i] = rate(group.ingress, rates.ingress);
  }
  return rates;
}

uint64_t narrowest_rate(const TierTree& tree, const CostModel& cost) {
  const GroupRates rates = planning_rates(tree, cost);
  uint64_t least = ~uint64_t{0};
  for (size_t group = 1; group < tree.groups.size(); group++)
    least = std::min({least, rates.egress[group], rates.ingress[group]});
  return least;
}

bool host_rates_known(const TierTree& tree) { return all_known(tree, true); }

bool network_rates_known(const TierTree& tree) { return all_known(tree, false); }

bool within_one_host(const TierTree& tree) {
  return !tree.groups.empty() && static_cast<int>(tree.groups[0].tier) <= host_tier(tree);
}

bool within_host(const TierTree& tree, int group) {
  return static_cast<int>(tree.groups[index(group)].tier) <= host_tier(tree);
}

std::vector<TierCost> tier_costs(const TierTree& tree, const CostModel& cost) {
  if (cost.tiers.size() == tree.tiers.size()) return cost.tiers;
  std::vector<TierCost> tiers(tree.tiers.size());
  std::vector<bool> seen(tiers.size(), false);
  for (size_t i = 1; i < tree.groups.size(); i++) {
    const Group& group = tree.groups[i];
    TierCost& tier = tiers[group.tier];
    // Within a host there are no headers, and nothing shapes.
    const bool network = !within_host(tree, group.parent);
    uint64_t burst_ns = ~uint64_t{0};
    for (const Capacity& side : {group.egress, group.ingress})
      burst_ns = std::min(burst_ns, side.known() && network
                                        ? transfer_ns(side.burst_bytes, side.bytes_per_s)
                                        : uint64_t{0});
    tier.burst_ns = seen[group.tier] ? std::min(tier.burst_ns, burst_ns) : burst_ns;
    if (network) tier.goodput_permille = cost.goodput_permille;
    seen[group.tier] = true;
  }
  return tiers;
}

CostModel gpu_cost() {
  CostModel cost;
  cost.post_ns = 1'000;
  cost.shared_memory_latency_ns = 3'400;
  cost.rdma_latency_ns = 14'000;
  cost.switch_ns = 0;
  cost.asking_latencies = 0;  // receivers post memory to the senders' queues
  cost.reduce_bytes_per_s = kFreeReduction;
  return cost;
}

CostModel device_memory_cost(CostModel cost) {
  cost.device_command_ns = 10'500;
  cost.reduce_bytes_per_s = 600'000'000'000;
  return cost;
}

namespace {

// Between hosts.
bool goes_by_rdma(const TierTree& tree, int group, const CostModel& cost) {
  return cost.way == Way::rdma ||
         (cost.way == Way::as_wired && does_rdma(tree.groups[index(group)].wire));
}

// Without what devices at its ends add.
uint64_t way_ns(const TierTree& tree, int group, const CostModel& cost) {
  const Group& g = tree.groups[index(group)];
  uint64_t ns = g.latency_ns;
  switch (latency_source(tree, group, cost)) {
    case LatencySource::declared:
      break;
    case LatencySource::within_host:
      ns = cost.shared_memory_latency_ns;
      break;
    case LatencySource::rdma:
      ns = cost.rdma_latency_ns + g.switches * cost.switch_ns;
      break;
    case LatencySource::sockets:
      ns = cost.latency_ns;
      break;
  }
  if (g.tier < cost.tiers.size()) ns = ns * cost.tiers[g.tier].latency_permille / kPermille;
  return ns;
}

}  // namespace

LatencySource latency_source(const TierTree& tree, int group, const CostModel& cost) {
  if (tree.groups[index(group)].latency_ns != 0) return LatencySource::declared;
  if (within_host(tree, group)) return LatencySource::within_host;
  return goes_by_rdma(tree, group, cost) ? LatencySource::rdma : LatencySource::sockets;
}

uint64_t planning_latency_ns(const TierTree& tree, int group, const CostModel& cost) {
  return way_ns(tree, group, cost) + 2 * cost.device_command_ns;
}

bool queues_on_the_way(const TierTree& tree, int group, const CostModel& cost) {
  return !goes_by_rdma(tree, group, cost) && !within_host(tree, group);
}

uint64_t asking_ns(const TierTree& tree, int group, const CostModel& cost) {
  if (!goes_by_rdma(tree, group, cost) || within_host(tree, group)) return 0;
  return cost.asking_latencies * way_ns(tree, group, cost);
}

uint64_t latency_of_bytes_ns(const TierTree& tree, int group, uint64_t bytes,
                             const CostModel& cost) {
  return planning_latency_ns(tree, group, cost) +
         (bytes > cost.eager_bytes ? asking_ns(tree, group, cost) : 0);
}

}  // namespace sennit
