// long_ring.cpp: see simulate/long_ring.hpp.
#include "simulate/long_ring.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "cost/rates.hpp"

namespace sennit::simulation {
namespace {

// Bytes/s from one position to another: the narrowest boundary's between them.
uint64_t rate_between(const TierTree& tree, int from, int to, const CostModel& cost) {
  uint64_t rate = ~uint64_t{0};
  const auto climb = [&](int position, int other, bool out) {
    for (int g = tree.leaf_of_position[index(position)];;) {
      const Group& group = tree.groups[index(g)];
      if (group.parent < 0 || (other >= group.first && other < group.first + group.size)) return;
      rate = std::min(rate, boundary_rate(tree, g, out ? group.egress : group.ingress, cost));
      g = group.parent;
    }
  };
  climb(from, to, true);
  climb(to, from, false);
  return rate;
}

// What goes over one hop: every piece but one, so often.
uint64_t bytes_of_hop(const TierTree& tree, const Request& request, uint64_t turns) {
  const auto n = static_cast<uint64_t>(tree.ranks());
  const auto bytes = static_cast<uint64_t>(payload_bytes(request, tree.ranks()));
  return scaled(turns * bytes, n - 1, n);
}

}  // namespace

std::vector<uint64_t> ring_hops_ns(const TierTree& tree, const Request& request, uint64_t turns,
                                   uint64_t time_ns, const CostModel& cost) {
  const uint64_t crossing = bytes_of_hop(tree, request, turns);
  const uint64_t pieces = turns * static_cast<uint64_t>(tree.ranks() - 1);
  std::vector<uint64_t> hops_ns;
  for (int position = 0; position < tree.ranks(); position++) {
    const int next = (position + 1) % tree.ranks();
    const uint64_t moving_ns =
        scaled(crossing, kNsPerSecond, rate_between(tree, position, next, cost));
    const uint64_t idle_ns = time_ns - std::min(time_ns, moving_ns);
    const uint64_t latency_ns = planning_latency_ns(tree, tree.common_group(position, next), cost);
    hops_ns.push_back(moving_ns + std::min(pieces * latency_ns, idle_ns));
  }
  return hops_ns;
}

SimulatedTime ring_time(const TierTree& tree, const Request& request, uint64_t turns,
                        uint32_t chunks, const SimulateOptions& options) {
  const auto n = static_cast<uint64_t>(tree.ranks());
  const auto bytes = static_cast<uint64_t>(payload_bytes(request, tree.ranks()));
  const uint64_t crossing = bytes_of_hop(tree, request, turns);
  uint64_t way_ns = 0, posting_ns = 0, moving_ns = 0;  // of one turn
  for (int position = 0; position < tree.ranks(); position++) {
    const int next = (position + 1) % tree.ranks();
    const int common = tree.common_group(position, next);
    moving_ns += scaled(bytes, kNsPerSecond, rate_between(tree, position, next, options.cost)) / n;
    way_ns +=
        latency_of_bytes_ns(tree, common, bytes / n / (options.fluid ? 1 : chunks), options.cost);
    posting_ns +=
        within_host(tree, common) ? options.cost.shared_memory_post_ns : options.cost.post_ns;
  }
  SimulatedTime time;
  time.closed_form = true;
  time.latency_ns = scaled(turns * way_ns, n - 1, n);
  time.rounds = turns * (n - 1);
  time.messages = turns * (n - 1) * n * chunks;
  uint64_t slowest_ns = 0;
  for (size_t g = 0; g < tree.groups.size(); g++) {
    const Group& group = tree.groups[g];
    time.groups.push_back({});
    if (group.parent < 0) continue;
    const auto busy = [&](const Capacity& capacity) {
      return scaled(crossing, kNsPerSecond,
                    boundary_rate(tree, static_cast<int>(g), capacity, options.cost));
    };
    time.groups.back() = {crossing, crossing, busy(group.egress), busy(group.ingress)};
    slowest_ns = std::max({slowest_ns, busy(group.egress), busy(group.ingress)});
  }
  if (options.fluid)
    time.time_ns = time.latency_ns + slowest_ns;
  else
    time.time_ns = std::max(
        slowest_ns, time.latency_ns + scaled(turns * (posting_ns * chunks + moving_ns), n - 1, n));
  return time;
}

}  // namespace sennit::simulation
