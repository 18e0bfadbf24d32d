// replay.hpp: a collective's programs over SimGrid, which shares out the network's time: the judge
// of sennit's simulator.
//
// Written from the executor's rules (engine/execution.hpp), not from the simulator: up to 8 chunks
// in flight per rank, receives posted at once, sends queued per peer (widest tier first, then
// lowest chunk, then step) and handed over while few bytes are under way to that peer, messages
// over the eager limit only into posted receives, messages from one rank to another one after the
// other. A message is a SimGrid Comm from its first to its last byte, and then the way's latency
// passes; posting and reducing pass one after the other on a rank's processor, reductions of the
// lowest chunk first. Every rank is replayed: no symmetry. Costs some tens of microseconds a
// message, and more where thousands are under way.
#pragma once

#include <cstdint>

#include "collectives/algorithm.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::judge {

// What a replay assumes of the executor and of the processors, and how long it may take.
struct ReplayOptions {
  // Posting and reducing, and which messages wait for their receives, for which nobody asks.
  CostModel cost = {.asking_latencies = 0};
  uint64_t in_flight_bytes = 512 * 1024;
  uint32_t limit_s = 60;  // of processor time
  int every = 1;          // one rank in so many places of the fabric; the others are idle
};

// What a replay came to; `time_s` is the collective's time in SimGrid, until its last rank is done.
struct Replayed {
  double time_s = 0;
  uint64_t messages = 0;
  double processor_s = 0;  // what the replay took
};

// In a child process, since a process has one SimGrid engine. The tree gives the ranks' order only.
// Errors: SENNIT_TIMED_OUT beyond the limit; a fabric that is no tree; a program that waits for
// ever.
Result<Replayed> replay(const Fabric& fabric, const TierTree& tree, const Request& request,
                        const Blueprint& blueprint, uint32_t chunks, const ReplayOptions& options);

}  // namespace sennit::judge
