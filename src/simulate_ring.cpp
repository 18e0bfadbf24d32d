// The closed form of a long ring: n ranks send 2 (n - 1) or n - 1 messages each, too many to simulate.
//
// A piece goes from rank to rank around the ring, once for a reduce-scatter or an all-gather and twice for an
// all-reduce, and every hop costs its latency and its posting; every group is left and entered by one hop,
// over which every piece but one goes. The time is the sum of the way and of the slowest group's bytes over
// its capacity: the pieces are small, and a rank passes on nothing before it has come.
#include "rates.hpp"
#include "simulate_ranks.hpp"

namespace sennit::simulation {

SimulatedTime ring_time(const TierTree& tree, const Request& request, uint32_t chunks,
                        const SimulateOptions& options) {
  const auto n = static_cast<uint64_t>(tree.ranks());
  const uint64_t turns = request.collective == Collective::all_reduce ? 2 : 1;
  const auto bytes = static_cast<uint64_t>(payload_bytes(request, tree.ranks()));
  const uint64_t crossing = scaled(turns * bytes, n - 1, n);  // by one hop
  uint64_t way_ns = 0, posting_ns = 0;
  for (int position = 0; position < tree.ranks(); position++) {
    const int common = tree.common_group(position, (position + 1) % tree.ranks());
    way_ns += planning_latency_ns(tree, common, options.cost);
    posting_ns += within_host(tree, common) ? options.cost.shared_memory_post_ns : options.cost.post_ns;
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
      return scaled(crossing, 1'000'000'000,
                    boundary_rate(tree, static_cast<int>(g), capacity, options.cost));
    };
    time.groups.back() = {crossing, crossing, busy(group.egress), busy(group.ingress)};
    slowest_ns = std::max({slowest_ns, busy(group.egress), busy(group.ingress)});
  }
  time.time_ns = time.latency_ns + slowest_ns;
  if (!options.fluid) time.time_ns += scaled(turns * posting_ns, n - 1, n) * chunks;
  return time;
}

}  // namespace sennit::simulation
