// simulate.hpp: how long a collective would take: the programs of all ranks, run at flow level on a
// tier tree.
//
// Event-driven. Ranks run their programs as engine/execution.cpp does: lanes of chunks, widest tier
// first, a limit on bytes in flight per peer, large messages only into posted receives. A message
// uses the egress of every group from the sender up to below the common group and the ingress of
// every group down to the receiver; messages that move at the same time share every directed
// capacity max-min fairly; those between the same two ranks go one after the other. Where the
// network has queues (SimulateOptions::queues), capacities up to the common group are shared apart
// from those down from it. Then the common group's latency passes. Over RDMA a large message asks
// for its receive before it moves. Posting, reducing and copying take a rank's processor, one thing
// at a time. Unknown figures are those of cost/rates.hpp. Parallel planes count as one pipe. Pure
// and deterministic. Cost: about one sharing of the links per distinct time at which messages start
// or end.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/algorithm.hpp"

namespace sennit {

// A message on its way; of one rank for all that do the same, or nearly.
struct SimulatedMessage {
  int from = 0, to = 0;  // positions
  uint32_t ranks = 1;    // how many send the like at the same time
  uint8_t tier = 0;      // that it crosses
  uint32_t chunk = 0;
  uint64_t bytes = 0;
  // Began to move, left the sender, passed the links of both ends (later where it queued), arrived.
  uint64_t begin_ns = 0, left_ns = 0, passed_ns = 0, delivered_ns = 0;
};

// Ranks: of a longer ring the closed form is taken (Algorithm::turns_around_ring).
inline constexpr int kLongRing = 1024;
// Whether the plan is one that is computed by that formula, not simulated.
bool has_closed_form(const TierTree& tree, const Request& request, const Plan& plan);

// One of a boundary's cables, that carries less than its share of the capacity, by so many times.
struct SlowCable {
  int group = 0;
  bool egress = true;
  uint32_t cable = 0;
  double factor = 1;
};

// How exactly, and under which costs.
struct SimulateOptions {
  // Neither the filling of pipelines nor posting nor reductions: the latency of the longest chain
  // of messages, with what asking takes, and then the busiest link's bytes over its capacity. Good
  // for comparing shapes, not for choosing.
  bool fluid = false;
  bool free_messages = false;     // messages take no latency and cost nothing to post
  uint64_t every_latency_ns = 0;  // of every message, instead of the tree's; 0: the tree's
  CostModel cost;
  // part of a link's capacity that may lie idle though flows want it; 0: exact
  double tolerance = 5e-3;
  // Messages end, and all else happens, at multiples of this, rounded up or down by chance (the
  // same one each time): rates are shared out so much less often. 0: exact.
  uint64_t grain_ns = 0;
  // Not 0: a boundary of several cables (Group::cables) is as many links, of which messages from
  // one rank to another take one, by a hash with this seed. Every rank is simulated then. 0: it is
  // one link, which all share.
  uint64_t cable_hash = 0;
  std::vector<SlowCable> slow_cables = {};
  // What is sent over sockets from host to host waits in the network's queues for its turn: a
  // sender goes on though its receiver's links are shared with others, and a message has arrived
  // once it has passed both the senders' and the receivers' links. RDMA's links push back instead.
  // False: a message has one rate all along its way.
  bool queues = false;
  uint64_t in_flight_bytes = 512 * 1024;  // the executor's limit per peer (SENNIT_IN_FLIGHT_BYTES)
  std::function<void(const SimulatedMessage&)> observe;  // told of each once it has passed its way
  std::function<void(uint64_t done, uint64_t all)> progress;  // told now and then: of messages
  bool symmetry = true;  // simulate one rank for all that do the same
  // Of more ranks one is simulated for all of a kind (Blueprint::kinds), which do nearly the same.
  int every_rank_up_to = kLongRing;
  // More are refused: messages of the ranks that are simulated, and ranks whose programs have to be
  // made to see which do the same.
  uint64_t most_messages = ~uint64_t{0};
  size_t most_programs = size_t{1} << 40;
};

// What crossed a group's boundary, and for how long anything was on its way across. Of ranks that
// count as alike one is counted for all: where pieces round differently, bytes are right to 1 in
// 500, of more than 1,024 ranks to 1 in 50. Where one stands for all of its kind they send at once,
// not one after the other, and no boundary is busy for long.
struct GroupLoad {
  uint64_t egress_bytes = 0, ingress_bytes = 0;
  uint64_t egress_busy_ns = 0, ingress_busy_ns = 0;
};

// What crossed the boundaries of a tier's groups.
struct TierLoad {
  uint64_t bytes = 0;    // out of all the tier's groups
  uint64_t busy_ns = 0;  // of the group and direction that was busy longest
  int busiest_group = -1;
};

// How long it took, and what moved meanwhile.
struct SimulatedTime {
  uint64_t time_ns = 0;           // until the last rank is done, all having started at 0
  std::vector<TierLoad> tiers;    // by tier; the root's is empty
  std::vector<GroupLoad> groups;  // by group
  uint64_t messages = 0;
  uint64_t scratch_bytes = 0;  // of the rank that needs most, all chunks in flight together
  uint64_t rounds = 0;         // fluid only: messages in the longest chain
  uint64_t latency_ns = 0;     // fluid only: of the chain that takes longest
  bool closed_form = false;    // has_closed_form(): a formula's time
  uint32_t rank_classes = 0;   // ranks that were simulated, each for all that do the same
  // Each for all of its kind, which do nearly the same: messages are nearly as many, and scratch is
  // that of one of the kind.
  bool by_kind = false;
};

// The plan's programs. Errors: what has no programs for all ranks to simulate (send and recv,
// variants whose counts no rank knows).
Result<SimulatedTime> simulate(const TierTree& tree, const Request& request, const Plan& plan,
                               const SimulateOptions& options);

// Programs made for another view of the same positions (capacities unknown, say), or by hand.
Result<SimulatedTime> simulate(const TierTree& tree, const Request& request,
                               const Blueprint& blueprint, uint32_t chunks,
                               const SimulateOptions& options);

}  // namespace sennit
