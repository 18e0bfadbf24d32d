// cost_model.hpp: what a message, its way and its reductions cost, where nothing better is known.
#pragma once

#include <cstdint>
#include <vector>

namespace sennit {

// What was measured of a tier beyond its declared or probed capacities
// (plan/tuning/calibration.hpp).
struct TierCost {
  uint64_t latency_permille = 1000;  // of the tree's, between children of a group of this tier
  uint64_t goodput_permille = 1000;  // payload over capacity
  uint64_t burst_ns = 0;  // of its capacity, passes at once: a shaper's burst, a deep buffer
  bool operator==(const TierCost&) const = default;
};

// Ranks of different hosts on the cores of one machine (plan/shared_cores.hpp).
struct SharedCores {
  // Whether the planner counts what that takes. False: its times are latency, posting and pipelined
  // tiers, and nothing else here has a meaning.
  bool counted = true;
  uint64_t message_cpu_ns = 5'000;     // of a core, for one between hosts (plan/message_cost.hpp)
  uint64_t crowding_permille = 1'000;  // ranks per core where that is most (plan/cores.hpp)
  // Some ranks have to wait for a core.
  bool crowded() const { return crowding_permille > 1'000; }
  bool operator==(const SharedCores&) const = default;
};

// How messages go between hosts.
enum class Way : uint8_t { as_wired, sockets, rdma };  // as_wired: what the tree says of its wires

// Posting cost, latency and reduction speed that the model assumes where nothing was measured.
struct CostModel {
  uint64_t post_ns = 2'000;
  // Of a message between hosts where a group's latency is unknown: over sockets, or where nobody
  // knows what; and over RDMA, where every switch adds its own. (OSU's micro-benchmarks on
  // InfiniBand; switch vendors' port-to-port figures.)
  uint64_t latency_ns = 30'000;
  uint64_t rdma_latency_ns = 1'500, switch_ns = 200;
  Way way = Way::as_wired;
  // Over RDMA a larger message is not sent at once. It asks for its receive, and the receiver then
  // reads it: so many of the way's latencies more. 0: receivers grant beforehand, as everywhere
  // else. (UCX's rendezvous; its limit is SENNIT_EAGER_BYTES.)
  uint64_t eager_bytes = 8 * 1024;
  uint64_t asking_latencies = 2;
  uint64_t shared_memory_latency_ns = 800;  // below the host
  uint64_t shared_memory_post_ns = 150;     // where all ranks are on one host
  uint64_t reduce_bytes_per_s = 8'000'000'000;
  // Where memory is a device's, which does its copies and sums itself: what one of them takes until
  // it begins. A message has one at either end.
  uint64_t device_command_ns = 0;
  uint64_t nic_bytes_per_s = 1'250'000'000;  // where nothing is known at all
  uint64_t goodput_permille = 1'000;  // payload over a capacity between hosts: what headers leave
  uint64_t message_bytes = 0;  // on a wire beside a message's payload: its own header and packet
  std::vector<TierCost> tiers = {};  // by tier; empty: nothing was measured
  SharedCores shared_cores = {};
  bool operator==(const CostModel&) const = default;
};

}  // namespace sennit
