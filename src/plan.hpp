// plan.hpp: what was decided for a Request on a TierTree, and why: algorithm, parameters, predicted time,
// bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "request.hpp"
#include "tier_tree.hpp"

namespace sennit {

inline constexpr uint32_t kMostChunks = 1u << 20;

// Parameters of every algorithm; one that has no use for a field leaves it at its default.
struct Parameters {
  uint32_t chunks = 1;  // pipeline slices per block
  std::vector<uint16_t>
      radices;               // tiered: from the innermost stage outwards; empty: one direct stage per tier
  uint8_t whole_stages = 0;  // tiered all-reduce: this many outermost stages exchange whole pieces;
                             // 255: all stages (small messages)
  bool operator==(const Parameters&) const = default;
  std::string to_text() const;
};

// The least time any schedule can take; see facts on bounds in DESIGN.md. Unknown where a capacity is
// unknown.
struct Bound {
  bool known = false;
  uint64_t time_ns = 0;
  int binding_tier = -1;          // index into TierTree::tiers; -1 when unknown
  int binding_group = -1;         // the group, or -1 where a whole tier binds together
  std::string why;                // "rack: 2(n-1)M / sum of egress"
  std::vector<uint64_t> tier_ns;  // by tier: the bound that this tier alone sets; 0: none
};
Bound lower_bound(const Request& request, const TierTree& tree);

// What an algorithm says of itself, in closed form, for the cost model. Integers only, so that all ranks
// agree.
struct Estimate {
  std::vector<uint64_t>
      tier_ns;  // by tier: bytes over the most loaded group boundary / its capacity, whole message
  // Of the ways from a group up to the root, the one on which boundaries take longest, one after the other;
  // 0: all of tier_ns. Less where the tiers' busiest boundaries are of different groups, as of a rank alone
  // in its rack and of another rack: what loads them are mostly different messages, which move at the same
  // time.
  uint64_t way_ns = 0;
  // Of the whole message in one chunk: what its way takes beyond that, where a rank sends on only what it has
  // received, over links that other ranks load no less.
  uint64_t fill_ns = 0;
  uint64_t latency_ns = 0;    // of the messages on one chunk's critical path
  uint64_t messages = 0;      // posted per chunk by the busiest rank
  uint64_t received = 0;      // per chunk by the busiest rank, where it takes in more than it posts
  uint64_t all_messages = 0;  // posted per chunk by all ranks together; 0: the busiest rank's times the ranks
  uint64_t reduce_bytes = 0;  // read by reductions of the busiest rank, whole message
};

struct Candidate {
  std::string algorithm;
  Parameters parameters;
  uint64_t predicted_ns = 0;
  std::string rejected;      // why it lost; empty for the choice
  uint64_t measured_ns = 0;  // of the tuning table's choice; 0: not measured
};

struct Plan {
  std::string algorithm;
  Parameters parameters;
  uint64_t predicted_ns = 0;
  Bound bound;
  std::vector<Candidate> candidates;
  uint64_t hash = 0;       // of request, tree fingerprint, algorithm and parameters
  bool asked_for = false;  // by an option or a file: it is verified before it first runs (asked_for.hpp)
  std::string to_text() const;
};

// What was measured of a tier beyond its declared or probed capacities (calibration.hpp).
struct TierCost {
  uint64_t latency_permille = 1000;  // of the tree's, between children of a group of this tier
  uint64_t goodput_permille = 1000;  // payload over capacity
  uint64_t burst_ns = 0;             // of its capacity, passes at once: a shaper's burst, a deep buffer
  bool operator==(const TierCost&) const = default;
};

// Posting cost, latency and reduction speed that the model assumes where nothing was measured.
struct CostModel {
  uint64_t post_ns = 2'000;
  uint64_t latency_ns = 30'000;             // per message where a group's latency is unknown
  uint64_t shared_memory_latency_ns = 800;  // below the host
  uint64_t shared_memory_post_ns = 150;     // where all ranks are on one host
  uint64_t message_cpu_ns = 5'000;          // of a core, for one between hosts (message_cost.hpp)
  uint64_t crowding_permille = 1'000;       // ranks per core where they share cores (cores.hpp)
  uint64_t reduce_bytes_per_s = 8'000'000'000;
  uint64_t nic_bytes_per_s = 1'250'000'000;  // where nothing is known at all
  uint64_t goodput_permille = 1'000;         // payload over a capacity between hosts: what headers leave
  uint64_t message_bytes = 0;   // on a wire beside a message's payload: its own header and packet
  std::vector<TierCost> tiers;  // by tier; empty: nothing was measured
  // Hosts that are namespaces of one kernel: a message is on its way only as long as cores work on it, and
  // sending it is nearly all of that, up to the receiver's socket.
  void within_one_machine() {
    latency_ns = 2 * message_cpu_ns;
    post_ns = message_cpu_ns;
  }
  bool operator==(const CostModel&) const = default;
};

struct PlanOptions {
  std::string algorithm;     // force this one; empty: choose
  uint64_t chunk_bytes = 0;  // force; 0: choose
  bool reproducible =
      false;  // only what sums in an order that the tree alone fixes, whatever the size and the chunks
  CostModel cost;
};

// Ok where `name` is empty or a registered algorithm's; else the error lists those.
Status check_algorithm(const std::string& name);

// Pure: the same on every rank. Errors: an algorithm that is not registered or does not apply.
Result<Plan> make_plan(const Request& request, const TierTree& tree, const PlanOptions& options);

// Makes candidate number `choice` the plan's.
void choose(const Request& request, const TierTree& tree, size_t choice, Plan* plan);

// The time of one algorithm with these parameters, under the same model. It must apply.
uint64_t predicted_ns(const Request& request, const TierTree& tree, const PlanOptions& options,
                      std::string_view algorithm, const Parameters& parameters);

}  // namespace sennit
