// pipeline.hpp: how long an algorithm takes that cuts its message into chunks: latency, posting,
// and tiers that work side by side.
//
// A message's chunks pass through the tiers one behind the other. The first takes
//   latency + posting + (sum of the tiers' times + reductions) / chunks,
// where tiers' times are over the goodput, and the reductions are those of all ranks that add up
// one after the other. Where messages go straight through all tiers, the slowest tier's time stands
// for the sum; where none waits for another, the later ones are posted while the first moves.
//
// Behind the first chunk the slowest tier has (1 - 1/chunks) of its time left, and of every chunk
// the headers of its messages. Meanwhile the busiest rank's processor reduces and posts the other
// chunks: the longer of the two counts, and of the shorter an eighth times the cube of its part of
// the longer. Within one host the cores that move are those that post, and both count. Where
// nobody knows what hosts send, posting counts for one chunk: on a network slower than assumed it
// hides behind the wire, while too few chunks cost up to a whole tier's time.
//
// Over RDMA messages that are not sent at once ask for their receives first, and latency is longer
// by that (CostModel::eager_bytes): whether they do follows from the number of chunks.
//
// A rank works on kLanes chunks at a time. Where a chunk ends at all ranks at the same time, as in
// whatever has no root, each of them holds its lane for its whole way, so
//   time >= (chunks * (latency + posting) + sum of the tiers' times + reductions) / kLanes.
// Of chunks that some rank holds for a part of their way (Estimate::held_percent) those beyond the
// first kLanes count by that part.
// What a rank copies for itself, of an all-gather or the like, hides behind the rest, or the rest
// behind that.
// What ranks that share cores and shaped links take beyond that is plan/shared_cores.hpp's. Pure,
// and integers only, so that all ranks agree.
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
  const bool hosts_known;             // or what hosts send is known
  const int network_tier;             // the lowest
};

// What one candidate takes, for whatever number of chunks.
struct Pipeline {
  // How the posting of the chunks behind the first counts.
  enum class Posting {
    added,   // the cores that post are those that move
    hidden,  // behind the slowest tier, but for a part of it
    free,
  };

  Pipeline(const Setting& setting, const Estimate& estimate);
  uint64_t ns(uint32_t chunks) const;

  // Of one chunk's messages; those that ask for their receives take longer.
  uint64_t latency_of(uint32_t chunks) const;

  uint64_t latency_ns;  // of those that do not
  std::vector<Estimate::Asking> asking;
  uint64_t eager_bytes;
  uint64_t posting_ns;  // of one chunk's messages
  // Of that, what the first message does not wait for.
  uint64_t later_posts_permille = 0;
  uint64_t header_ns = 0;  // that one chunk's messages add to the slowest tier
  Posting posting;
  uint8_t held_percent;  // of a chunk's way some rank holds a lane for it
  // Of all tiers of the network together, whichever of them are at the same time.
  Wide burden_ns = 0;
  Wide tiers_ns = 0;  // of the whole message, tier after tier
  uint64_t largest_tier_ns = 0;
  Wide refill_ns = 0;     // of the whole message: what chunks beyond the first wait for once more
  uint64_t reduction_ns;  // of the busiest rank
  uint64_t others_reduction_ns;
  uint64_t copy_ns;  // of a rank's own block, from its input to its output
  // Among calls in a row: no call takes less than this, and of what it takes alone this many
  // thousandths are at the same time as its turn. 0: calls do not wait for one another.
  uint64_t turn_ns = 0, turn_permille = 0;
};

// Bytes that the request moves, as payload_bytes() means them, and no more than 9e18.
uint64_t message_bytes(const Request& request, int ranks);

// Chunks smaller than this are not compared; and what is searched to judge the choices
// (PlanOptions::every_chunk) goes further down.
constexpr uint64_t kLeastChunkBytes = 16 * 1024, kLeastSearchedBytes = 4 * 1024;

// Numbers of chunks of `least_bytes` at the least that are worth comparing: 1, 2, and on in steps
// of the root of 2, ascending.
std::vector<uint32_t> chunk_counts(const Algorithm& algorithm, const Request& request,
                                   const TierTree& tree, uint64_t least_bytes);
// The number of chunks of this size, {1} where the algorithm has no use for chunks.
std::vector<uint32_t> chunks_of(const Algorithm& algorithm, const Request& request, int ranks,
                                uint64_t chunk_bytes);

}  // namespace sennit
