// pipeline.hpp: how long an algorithm takes that cuts its message into chunks: latency, posting,
// and tiers that work side by side.
//
// A message's chunks pass through the tiers one behind the other, so
//   time = latency + posting + (sum of the tiers' times) / chunks
//        + (1 - 1/chunks) * (largest of them),
// where the reductions count as one more tier, tiers' times are over the goodput, and posting as
// often as there are chunks. Where rates are unknown posting counts once: on a network slower than
// assumed it hides behind the wire, while too few chunks cost up to a whole tier's time. What
// ranks that share cores and shaped links take beyond that is plan/shared_cores.hpp's. Pure, and
// integers only, so that all ranks agree.
#pragma once

#include <cstdint>
#include <vector>

#include "base/arithmetic.hpp"
#include "collectives/algorithm.hpp"
#include "cost/cost_model.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// What all candidates of one request have in common. Tree, request and costs must outlive it.
struct Setting {
  Setting(const TierTree& t, const Request& r, const CostModel& c);
  const TierTree& tree;
  const Request& request;
  const CostModel& cost;
  const std::vector<TierCost> tiers;  // by tier
  const bool one_host;                // all ranks are on it
  const bool rates_known;
};

// What one candidate takes, for whatever number of chunks.
struct Pipeline {
  Pipeline(const Setting& setting, const Estimate& estimate);
  uint64_t ns(uint32_t chunks) const;

  uint64_t latency_ns;
  uint64_t posting_ns;  // of one chunk's messages
  bool posts_each_chunk;
  Wide tiers_ns = 0;  // of the whole message, tier after tier
  uint64_t largest_tier_ns = 0;
  uint64_t reduction_ns;
  // Among calls in a row: no call takes less than this, and of what it takes alone this many
  // thousandths are at the same time as its turn. 0: calls do not wait for one another.
  uint64_t turn_ns = 0, turn_permille = 0;
};

// Bytes that the request moves, as payload_bytes() means them, and no more than 9e18.
uint64_t message_bytes(const Request& request, int ranks);

// Numbers of chunks worth comparing, ascending. `chunk_bytes`: of this size; 0: as is best.
std::vector<uint32_t> chunk_counts(const Algorithm& algorithm, const Request& request,
                                   const TierTree& tree, uint64_t chunk_bytes);

}  // namespace sennit
