// long_ring.hpp: the closed form of a long ring: n ranks send 2 (n - 1) or n - 1 messages each, too
// many to simulate.
//
// A piece goes from rank to rank around the ring, once for a reduce-scatter or an all-gather and
// twice for an all-reduce, and every hop costs its latency and its posting; every group is left and
// entered by one hop, over which every piece but one goes. Fluid: the latency of the way, and then
// the slowest group's bytes over its capacity. Else each turn is the longest of three. One is the
// way of a chunk's piece, with its posting, its time on every hop and, in the turn that adds up,
// its reductions; as often as the lanes take up chunks. The others are what the processor of a
// rank posts and reduces of all chunks, and what the slowest hop has to move.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/simulate.hpp"

namespace sennit::simulation {

// Of an algorithm whose pieces go so often around a ring (Algorithm::turns_around_ring).
SimulatedTime ring_time(const TierTree& tree, const Request& request, uint64_t turns,
                        uint32_t chunks, const SimulateOptions& options);
// By position, for how long what it sends to the next one is on its way in all, of ring_time()'s
// `time_ns`. Of a hop that is idle at times each piece's latency counts, of a busy one none: there
// the next piece is on its way meanwhile.
std::vector<uint64_t> ring_hops_ns(const TierTree& tree, const Request& request, uint64_t turns,
                                   uint64_t time_ns, const CostModel& cost);

}  // namespace sennit::simulation
