// long_ring.cpp: see simulate/long_ring.hpp.
#include "simulate/long_ring.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "cost/rates.hpp"
#include "schedule/prepared.hpp"

namespace sennit::simulation {
namespace {

constexpr uint64_t kSources = 2;  // of a reduction: what arrived, and the rank's own

// Bytes/s from one position to another: the narrowest boundary's between them.
uint64_t rate_between(const TierTree& tree, const GroupRates& rates, int from, int to) {
  uint64_t rate = ~uint64_t{0};
  const auto climb = [&](int position, int other, bool out) {
    for (int g = tree.leaf_of_position[index(position)];;) {
      const Group& group = tree.groups[index(g)];
      if (group.parent < 0 || (other >= group.first && other < group.first + group.size)) return;
      rate = std::min(rate, (out ? rates.egress : rates.ingress)[index(g)]);
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
  const GroupRates rates = planning_rates(tree, cost);
  std::vector<uint64_t> hops_ns;
  for (int position = 0; position < tree.ranks(); position++) {
    const int next = (position + 1) % tree.ranks();
    const uint64_t moving_ns = transfer_ns(crossing, rate_between(tree, rates, position, next));
    const uint64_t idle_ns = time_ns - std::min(time_ns, moving_ns);
    const uint64_t latency_ns = planning_latency_ns(tree, tree.common_group(position, next), cost);
    hops_ns.push_back(moving_ns + std::min(saturated(Wide{pieces} * latency_ns), idle_ns));
  }
  return hops_ns;
}

namespace {

// Of a whole piece, or one chunk's message, on all hops together.
struct Hops {
  uint64_t way_ns = 0, posting_ns = 0, moving_ns = 0;
  uint64_t most_posting_ns = 0;  // of one hop
};

Hops all_hops(const TierTree& tree, const GroupRates& rates, uint64_t bytes, uint64_t message_bytes,
              const CostModel& cost) {
  Hops all;
  for (int position = 0; position < tree.ranks(); position++) {
    const int next = (position + 1) % tree.ranks();
    const int common = tree.common_group(position, next);
    const uint64_t posting_ns =
        within_host(tree, common) ? cost.shared_memory_post_ns : cost.post_ns;
    all.moving_ns += transfer_ns(bytes, rate_between(tree, rates, position, next)) /
                     static_cast<uint64_t>(tree.ranks());
    all.way_ns += latency_of_bytes_ns(tree, common, message_bytes, cost);
    all.posting_ns += posting_ns;
    all.most_posting_ns = std::max(all.most_posting_ns, posting_ns);
  }
  return all;
}

// One turn of all chunks. `reduction_ns`: of one piece at one rank; `slowest_ns`: of the slowest
// hop with all that goes over it.
uint64_t turn_ns(const Hops& hops, uint64_t ranks, uint64_t chunks, uint64_t reduction_ns,
                 uint64_t slowest_ns) {
  const uint64_t lanes = std::min<uint64_t>(chunks, kLanes);
  const Wide of_a_piece = Wide{hops.moving_ns} + Wide{ranks} * reduction_ns;
  const Wide way = Wide{hops.way_ns} + hops.posting_ns + of_a_piece / chunks;
  const Wide ways = way * (ranks - 1) / ranks * chunks / lanes;
  const Wide processor = Wide{ranks - 1} * (Wide{hops.most_posting_ns} * chunks + reduction_ns);
  return saturated(std::max({ways, processor, Wide{slowest_ns}}));
}

}  // namespace

SimulatedTime ring_time(const TierTree& tree, const Request& request, uint64_t turns,
                        uint32_t chunks, const SimulateOptions& options) {
  chunks = options.fluid ? 1 : std::max(1u, chunks);
  const auto n = static_cast<uint64_t>(tree.ranks());
  const auto bytes = static_cast<uint64_t>(payload_bytes(request, tree.ranks()));
  const uint64_t crossing = bytes_of_hop(tree, request, turns);
  const GroupRates rates = planning_rates(tree, options.cost);
  const Hops hops = all_hops(tree, rates, bytes, bytes / n / chunks, options.cost);
  SimulatedTime time;
  time.closed_form = true;
  time.latency_ns = scaled(turns * hops.way_ns, n - 1, n);
  time.rounds = turns * (n - 1);
  time.messages = turns * (n - 1) * n * chunks;
  uint64_t slowest_ns = 0;
  for (size_t g = 0; g < tree.groups.size(); g++) {
    time.groups.push_back({});
    if (tree.groups[g].parent < 0) continue;
    const uint64_t out_ns = transfer_ns(crossing, rates.egress[g]);
    const uint64_t in_ns = transfer_ns(crossing, rates.ingress[g]);
    time.groups.back() = {crossing, crossing, out_ns, in_ns};
    slowest_ns = std::max({slowest_ns, out_ns, in_ns});
  }
  if (options.fluid) {
    time.time_ns = saturated(Wide{time.latency_ns} + slowest_ns);
    return time;
  }
  for (uint64_t turn = 0; turn < turns; turn++) {  // the first adds up
    const bool reduces = request.reduces() && turn == 0;
    const uint64_t reduction_ns =
        reduces ? transfer_ns(kSources * (bytes / n), options.cost.reduce_bytes_per_s) : 0;
    time.time_ns =
        saturated(Wide{time.time_ns} + turn_ns(hops, n, chunks, reduction_ns, slowest_ns / turns));
  }
  return time;
}

}  // namespace sennit::simulation
