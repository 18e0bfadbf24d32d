// pipeline.cpp: see plan/pipeline.hpp.
#include "plan/pipeline.hpp"

#include <algorithm>

#include "cost/rates.hpp"

namespace sennit {
namespace {

constexpr uint32_t kMaxChunks = 64;
constexpr uint64_t kMinChunkBytes = 128 * 1024;
constexpr uint64_t kHostChunkBytes = 32 << 20;  // within one host: bounds scratch, no more
constexpr uint64_t kMinSliceBytes = 1024;  // of one block, where a message has one block per rank
constexpr uint64_t kMostBytes = 9'000'000'000'000'000'000;

// Of two loads that run at the same time, one part in so many of the lesser is not hidden behind
// the greater: messages of one call queue behind those of another.
constexpr uint64_t kUnhidden = 8;

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
      rates_known(one_host || t.capacities_known()) {}

Pipeline::Pipeline(const Setting& setting, const Estimate& estimate)
    : latency_ns(estimate.latency_ns),
      posting_ns(estimate.messages *
                 (setting.one_host ? setting.cost.shared_memory_post_ns : setting.cost.post_ns)),
      posts_each_chunk(setting.rates_known),
      reduction_ns(transfer_ns(estimate.reduce_bytes, setting.cost.reduce_bytes_per_s)) {
  for (size_t tier = 0; tier < estimate.tier_ns.size(); tier++) {
    const uint64_t ns =
        saturated(Wide{estimate.tier_ns[tier]} * kPermille / setting.tiers[tier].goodput_permille);
    tiers_ns += ns;
    largest_tier_ns = std::max(largest_tier_ns, ns);
  }
}

uint64_t Pipeline::ns(uint32_t chunks) const {
  const uint64_t largest = std::max(largest_tier_ns, reduction_ns);
  const Wide sum = tiers_ns + reduction_ns;
  const uint64_t alone =
      saturated(Wide{latency_ns} + Wide{posting_ns} * (posts_each_chunk ? chunks : 1) +
                sum / chunks + largest - largest / chunks);
  const Wide unhidden = Wide{std::min(alone, turn_ns)} * turn_permille / kPermille / kUnhidden;
  return saturated(Wide{std::max(alone, turn_ns)} + unhidden);
}

uint64_t message_bytes(const Request& request, int ranks) {
  const double bytes = payload_bytes(request, ranks);
  return bytes >= static_cast<double>(kMostBytes) ? kMostBytes : static_cast<uint64_t>(bytes);
}

std::vector<uint32_t> chunk_counts(const Algorithm& algorithm, const Request& request,
                                   const TierTree& tree, uint64_t chunk_bytes) {
  const int ranks = tree.ranks();
  const uint64_t bytes = message_bytes(request, ranks);
  if (!algorithm.pipelines()) return {1};
  if (chunk_bytes != 0)
    return {within_limits(bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0))};
  // Where everybody sends to everybody within one host, the cores that reduce are those that copy:
  // chunks overlap nothing, they only cost.
  const bool symmetric = request.collective == Collective::all_reduce ||
                         request.collective == Collective::all_gather ||
                         request.collective == Collective::reduce_scatter;
  if (symmetric && within_one_host(tree)) return {within_limits(bytes / kHostChunkBytes)};
  std::vector<uint32_t> counts{1};
  const uint64_t smallest = std::max(
      kMinChunkBytes, has_blocks(request) ? kMinSliceBytes * static_cast<uint64_t>(ranks) : 0);
  for (uint32_t c = 2; c <= kMaxChunks && bytes / c >= smallest; c *= 2) counts.push_back(c);
  return counts;
}

}  // namespace sennit
