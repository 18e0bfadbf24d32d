// round.hpp: what a probe measures at one time, and the groups of hosts that it is after.
#pragma once

#include <cstdint>
#include <vector>

namespace sennit::probe {

// What one host sends to another in a round.
struct Flow {
  int from = 0, to = 0;  // hosts
  bool operator==(const Flow&) const = default;
};

// Flows that run at the same time.
struct Round {
  bool latency = false;   // round trips; else rates
  bool long_run = false;  // many flows, which need time to find their shares
  std::vector<Flow> flows;
};

// Hosts that are nearer to one another than to the rest.
struct Group {
  int parent = -1;         // index into Findings::groups; -1: the root, which is groups[0]
  std::vector<int> hosts;  // all below, ascending
  uint64_t egress_bytes_per_s = 0, ingress_bytes_per_s = 0;  // root: 0
  // shortest round trips: to outside / between the farthest parts inside; how sure
  double separation = 0;
};

}  // namespace sennit::probe
