// shared_cores.cpp: see plan/shared_cores.hpp.
#include "plan/shared_cores.hpp"

#include <algorithm>

namespace sennit {
namespace {

// A message takes most of its time where it is sent, up to the receiver's socket or adapter.
constexpr uint64_t kReceivedAsPosted = 2;

// What the ranks of a barrier send at the least, each.
constexpr uint64_t kBarrierMessages = 2;

// A core's time for so many messages, as often as ranks share it.
Wide crowded_ns(Wide messages, const SharedCores& shared) {
  return messages * shared.message_cpu_ns * shared.crowding_permille / kPermille;
}

// What a chunk's messages cost: the busiest rank's one after the other, or all together on the
// cores that ranks share, whichever is more.
uint64_t posting_ns(const Setting& setting, const Estimate& estimate,
                    const SharedCoresEstimate& shared, uint64_t posted_ns) {
  const CostModel& cost = setting.cost;
  const uint64_t post_ns = setting.one_host ? cost.shared_memory_post_ns : cost.post_ns;
  const bool crowded = !setting.one_host && cost.shared_cores.crowded();
  if (!crowded && !setting.one_host) return posted_ns;
  const uint64_t busiest = std::max(posted_ns, shared.received * post_ns / kReceivedAsPosted);
  if (!crowded) return busiest;
  const auto ranks = static_cast<uint64_t>(setting.tree.ranks());
  const Wide all = shared.all_messages ? shared.all_messages : estimate.messages * ranks;
  return std::max(busiest, saturated(crowded_ns(all, cost.shared_cores) / ranks));
}

// Where data goes one way, its root may be done before the others are, and in use as in `sennit
// tune` something follows in which all ranks meet: at the least a barrier. Known of ranks that
// share cores.
uint64_t meeting_ns(const Setting& setting) {
  const SharedCores& shared = setting.cost.shared_cores;
  if (!has_root(setting.request.collective) || !shared.crowded()) return 0;
  return saturated(crowded_ns(kBarrierMessages, shared));
}

}  // namespace

void share_cores(const Setting& setting, const Algorithm& algorithm, const Parameters& parameters,
                 const Estimate& estimate, Pipeline* pipeline) {
  if (!setting.cost.shared_cores.counted) return;
  const SharedCoresEstimate shared =
      algorithm.on_shared_cores(setting.tree, setting.request, parameters, setting.cost, estimate);
  pipeline->posting_ns = posting_ns(setting, estimate, shared, pipeline->posting_ns);
  // A burst passes at once, so messages do not wait for the wire hop after hop; but what has passed
  // must be earned again at the rate, so no call takes less than its busiest boundary does at its
  // rate, but for what is earned between the calls.
  const uint64_t busiest_ns = pipeline->largest_tier_ns;
  Wide all = 0, waiting = 0, sum = 0;
  uint64_t largest = 0, slowest = 0;
  for (size_t tier = 0; tier < estimate.tier_ns.size(); tier++) {
    const uint64_t ns = estimate.tier_ns[tier];
    const uint64_t waits = ns - std::min(ns, setting.tiers[tier].burst_ns);
    const uint64_t waits_ns =
        saturated(Wide{waits} * kPermille / setting.tiers[tier].goodput_permille);
    largest = std::max(largest, waits_ns);
    sum += waits_ns;
    slowest = std::max(slowest, ns);
    all += ns;
    waiting += waits;
  }
  if (shared.way_ns > 0 && shared.way_ns < all)
    sum = std::max(Wide{largest}, sum * shared.way_ns / all);
  // Shapers of one machine hold messages back one behind the other.
  const bool at_once = estimate.at_once && !setting.cost.shared_cores.crowded();
  if (at_once) sum = largest;
  const Wide taken = at_once ? Wide{slowest} : all;
  const Wide fill = shared.path_ns - std::min(Wide{shared.path_ns}, taken);
  const bool bursts = waiting < all;
  sum += bursts ? fill * waiting / all : fill;
  if (shared.fills_twice) pipeline->refill_ns = sum - std::min(sum, Wide{largest});
  pipeline->tiers_ns = sum;
  pipeline->largest_tier_ns = largest;
  if (!bursts) return;
  // What passes in a burst is small, and is read out of a cache by the next one on its way.
  pipeline->others_reduction_ns = saturated(Wide{pipeline->others_reduction_ns} * waiting / all);
  pipeline->turn_ns = busiest_ns - std::min(busiest_ns, meeting_ns(setting));
  pipeline->turn_permille = static_cast<uint64_t>((all - waiting) * kPermille / all);
}

void within_one_machine(CostModel* cost) {
  // From the sender's call to the receiver's socket, and from there to the receiver.
  constexpr uint64_t kWays = 2;
  if (!cost->shared_cores.counted) return;
  cost->way = Way::sockets;
  cost->latency_ns = kWays * cost->shared_cores.message_cpu_ns;
  cost->post_ns = cost->shared_cores.message_cpu_ns;
}

}  // namespace sennit
