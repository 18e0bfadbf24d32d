// rates.hpp: rates and latencies of a tier tree's groups for planning, with assumptions where a
// figure is unknown.
//
// Assumed figures are for comparing and sharing out only and never shown as known. Integers only.
// Time: O(groups).
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// What every group's boundary carries in each direction.
struct GroupRates {
  std::vector<uint64_t> egress, ingress;  // bytes/s by group; 0 for the root
};
// What is known, and where that is nothing: a boundary within a host is as fast as ranks reduce,
// that of a host as the slowest NIC of which something is known, and that of a group of hosts
// carries a quarter of what its children send, so that uplinks count as scarce.
GroupRates planning_rates(const TierTree& tree, const CostModel& cost);

// The least that any boundary carries in either direction; of one rank none.
uint64_t narrowest_rate(const TierTree& tree, const CostModel& cost);

// Whether what all hosts send and receive is known, so that no time is reckoned by a NIC that is
// merely assumed; and whether all that lies between hosts is. Nobody asks what lies within them.
bool host_rates_known(const TierTree& tree);
bool network_rates_known(const TierTree& tree);
// The lowest tier whose groups send over the network: hosts, or ranks that have NICs of their own.
int lowest_network_tier(const TierTree& tree);

// All ranks are on one host, whose cores do all the moving.
bool within_one_host(const TierTree& tree);
// All of the group is on one host.
bool within_host(const TierTree& tree, int group);

// By tier: what was measured, else what the fabric declares of bursts and the model of headers.
// O(groups).
std::vector<TierCost> tier_costs(const TierTree& tree, const CostModel& cost);

// What RDMA takes of a processor to post a message.
inline constexpr uint64_t kRdmaPostNs = 300;

// A rate at which reducing takes no time beside any network.
inline constexpr uint64_t kFreeReduction = uint64_t{1} << 62;
// Where ranks are GPUs, whose messages a processor hands on: what one of NCCL's protocol for long
// messages takes over NVLink, and over any network that it calls by verbs (its own figures,
// tuning.cc). GPUs reduce as fast as their memory is read, which is nothing beside a network.
CostModel gpu_cost();
// `cost`, which is that of the host's memory, for calls on a device's, where a kernel copies and
// adds up: what a command to it was measured to take on one GPU, and what 32 blocks of it copy
// (perf/RESULTS.md, "The kernel copies and adds up").
CostModel device_memory_cost(CostModel cost);

// Whether NICs of this kind send without the kernel.
inline bool does_rdma(Wire wire) { return wire == Wire::infiniband || wire == Wire::roce; }

// Where the latency within a group comes from.
enum class LatencySource : uint8_t { declared, within_host, rdma, sockets };
LatencySource latency_source(const TierTree& tree, int group, const CostModel& cost);
// Of one message between two children of the group.
uint64_t planning_latency_ns(const TierTree& tree, int group, const CostModel& cost);
// Whether queues on the way between children of the group hold what is sent: sockets between hosts
// keep them filled, RDMA's links push back, and within a host there is nothing on the way.
bool queues_on_the_way(const TierTree& tree, int group, const CostModel& cost);
// What asking for its receive adds where it is larger than CostModel::eager_bytes.
uint64_t asking_ns(const TierTree& tree, int group, const CostModel& cost);
// Both together, of one message of so many bytes.
uint64_t latency_of_bytes_ns(const TierTree& tree, int group, uint64_t bytes,
                             const CostModel& cost);

}  // namespace sennit
