// pipeline.cpp: see plan/pipeline.hpp.
#include "plan/pipeline.hpp"

#include <algorithm>

#include "collectives/common.hpp"
#include "cost/rates.hpp"
#include "schedule/prepared.hpp"

namespace sennit {
namespace {

// What waits for the first chunk is a 256th then: more gain little. Of larger messages a 64th is
// enough, since a simulation takes as long as there are chunks.
constexpr uint64_t kMaxChunks = 256, kMaxChunksOfLarge = 64;
constexpr uint64_t kLargeBytes = 64 << 20;
// Within one host, where chunks hide little, and those of collectives without a root nothing.
constexpr uint64_t kLeastHostChunkBytes = 128 * 1024;
constexpr uint64_t kHostChunkBytes = 32 << 20;  // bounds scratch, no more
constexpr uint64_t kMinSliceBytes = 512;  // of one block, where a message has one block per rank
constexpr uint64_t kMostBytes = 9'000'000'000'000'000'000;

// Of two loads that run at the same time, one part in so many of the lesser is not hidden behind
// the greater: messages of one call queue behind those of another.
constexpr uint64_t kUnhidden = 8;
constexpr uint8_t kPercent = 100;

// Of candidates that all wait for a copy the one whose messages are done sooner is the better: one
// part in so many of the time between counts for it.
constexpr uint64_t kBeforeCopy = 64;

// What posting and moving, of which the longer is counted, add to one another. The lesser the one
// is beside the other, the less it gets in the way: by the third power, as was measured on emulated
// trees with up to 1,024 chunks.
Wide not_hidden(Wide a, Wide b) {
  const Wide longer = std::max({a, b, Wide{1}}), shorter = std::min(a, b);
  const Wide share = saturated(shorter * kPermille / longer);
  return shorter * share / kPermille * share / kPermille * share / kPermille / kUnhidden;
}

bool has_blocks(const Request& request) {
  switch (request.collective) {
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return true;
    default:
      return false;
  }
}

// That a rank keeps, and so copies from its input to its output; in place it would not, but ranks
// need not agree on that.
uint64_t own_block_bytes(const Request& request, int ranks) {
  if (!has_blocks(request) || request.reduces()) return 0;
  if (has_root(request.collective)) return block_bytes(request, request.root);
  uint64_t largest = 0;
  for (int i = 0; i < (request.counts.empty() ? 1 : ranks); i++)
    largest = std::max(largest, block_bytes(request, i));
  return largest;
}

// Numbers in steps of the root of 2, from 1: 1, 2, 3, 4, 6, 8, 11, 16...
uint64_t steps_of_root_two(unsigned step) {
  constexpr uint64_t kRootTwo = 1448, kScale = 1024;
  const uint64_t power = uint64_t{1} << (step / 2);
  return step % 2 == 0 ? power : (power * kRootTwo + kScale / 2) / kScale;
}

uint32_t within_limits(uint64_t chunks) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(chunks, 1, kMostChunks));
}

}  // namespace

Setting::Setting(const TierTree& t, const Request& r, const CostModel& c)
    : tree(t),
      request(r),
      cost(c),
      tiers(tier_costs(t, c)),
      one_host(within_one_host(t)),
      hosts_known(one_host || host_rates_known(t)),
      network_tier(lowest_network_tier(t)) {}

Pipeline::Pipeline(const Setting& setting, const Estimate& estimate)
    : latency_ns(estimate.latency_ns),
      asking(estimate.asking),
      eager_bytes(setting.cost.eager_bytes),
      posting_ns(
          saturated(Wide{estimate.messages} * (setting.one_host ? setting.cost.shared_memory_post_ns
                                                                : setting.cost.post_ns))),
      posting(setting.hosts_known && setting.one_host ? Posting::added
              : setting.hosts_known                   ? Posting::hidden
                                                      : Posting::free),
      held_percent(has_root(setting.request.collective) ? estimate.held_percent : kPercent),
      reduction_ns(transfer_ns(estimate.reduce_bytes, setting.cost.reduce_bytes_per_s)),
      others_reduction_ns(
          transfer_ns(estimate.reduce_bytes_of_others, setting.cost.reduce_bytes_per_s)),
      copy_ns(transfer_ns(own_block_bytes(setting.request, setting.tree.ranks()),
                          setting.cost.reduce_bytes_per_s)) {
  if (estimate.posted_at_once && estimate.messages > 1 && posting != Posting::added)
    later_posts_permille = kPermille - kPermille / estimate.messages;
  for (size_t tier = 0; tier < estimate.tier_ns.size(); tier++) {
    const auto over_goodput = [&](uint64_t ns) {
      return saturated(Wide{ns} * kPermille / setting.tiers[tier].goodput_permille);
    };
    const uint64_t ns = over_goodput(estimate.tier_ns[tier]);
    if (tier >= static_cast<size_t>(setting.network_tier)) burden_ns += ns;
    largest_tier_ns = std::max(largest_tier_ns, ns);
    tiers_ns = estimate.at_once ? Wide{largest_tier_ns} : tiers_ns + ns;
    if (estimate.headers_ns.empty()) continue;
    const uint64_t payload_ns = estimate.tier_ns[tier] - estimate.headers_ns[tier];
    header_ns = std::max(header_ns, ns - over_goodput(payload_ns));
  }
}

uint64_t Pipeline::latency_of(uint32_t chunks) const {
  Wide ns = latency_ns;
  for (const Estimate::Asking& asked : asking)
    if (asked.bytes / chunks > eager_bytes) ns += asked.ns;
  return saturated(ns);
}

uint64_t Pipeline::ns(uint32_t chunks) const {
  const Wide way = latency_of(chunks);
  const Wide sum = tiers_ns + reduction_ns + others_reduction_ns, later = chunks - 1;
  const Wide moving = largest_tier_ns - largest_tier_ns / chunks + later * header_ns;
  const Wide reducing = reduction_ns - reduction_ns / chunks, posts = later * posting_ns;
  // While the first of several messages moves the others are posted.
  const Wide moved = tiers_ns / chunks;
  const Wide posted = Wide{posting_ns} * later_posts_permille / kPermille;
  const Wide hidden = std::min(moved, posted) - not_hidden(moved, posted);
  Wide time = way + posting_ns - hidden + sum / chunks + refill_ns / chunks * later / chunks;
  switch (posting) {
    case Posting::added:
      time += std::max(moving, reducing) + posts;
      break;
    case Posting::hidden:
      time += std::max(moving, reducing + posts) + not_hidden(moving, reducing + posts);
      break;
    case Posting::free:
      time += std::max(moving, reducing);
      break;
  }
  if (held_percent > 0 && chunks > kLanes) {
    const Wide first = way + posting_ns;
    const Wide held = first * kLanes + (chunks - kLanes) * first * held_percent / kPercent;
    time = std::max(time, (held + sum) / kLanes);
  }
  if (copy_ns > 0) {
    const Wide copied = Wide{chunks} * posting_ns + copy_ns;
    if (copied > time) time = copied - (copied - time) / kBeforeCopy;
  }
  const uint64_t alone = saturated(time);
  const Wide unhidden = Wide{std::min(alone, turn_ns)} * turn_permille / kPermille / kUnhidden;
  return saturated(Wide{std::max(alone, turn_ns)} + unhidden);
}

uint64_t message_bytes(const Request& request, int ranks) {
  const double bytes = payload_bytes(request, ranks);
  return bytes >= static_cast<double>(kMostBytes) ? kMostBytes : static_cast<uint64_t>(bytes);
}

std::vector<uint32_t> chunk_counts(const Algorithm& algorithm, const Request& request,
                                   const TierTree& tree, uint64_t least_bytes) {
  const uint64_t bytes = message_bytes(request, tree.ranks());
  if (!algorithm.pipelines()) return {1};
  const bool one_host = within_one_host(tree);
  // Where everybody sends to everybody within one host, the cores that reduce are those that copy:
  // chunks overlap nothing, they only cost.
  const bool symmetric = request.collective == Collective::all_reduce ||
                         request.collective == Collective::all_gather ||
                         request.collective == Collective::reduce_scatter;
  if (symmetric && one_host) return {within_limits(bytes / kHostChunkBytes)};
  if (one_host) least_bytes = std::max(least_bytes, kLeastHostChunkBytes);
  if (has_blocks(request))
    least_bytes = std::max(least_bytes, kMinSliceBytes * static_cast<uint64_t>(tree.ranks()));
  const uint64_t most = bytes > kLargeBytes ? kMaxChunksOfLarge : kMaxChunks;
  std::vector<uint32_t> counts{1};
  for (unsigned step = 2;; step += bytes > kLargeBytes ? 2 : 1) {
    const uint64_t chunks = steps_of_root_two(step);
    if (chunks > most || bytes / chunks < least_bytes) return counts;
    counts.push_back(static_cast<uint32_t>(chunks));
  }
}

std::vector<uint32_t> chunks_of(const Algorithm& algorithm, const Request& request, int ranks,
                                uint64_t chunk_bytes) {
  if (!algorithm.pipelines()) return {1};
  const uint64_t bytes = message_bytes(request, ranks);
  return {within_limits(bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0))};
}

}  // namespace sennit
