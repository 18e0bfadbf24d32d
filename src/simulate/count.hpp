// count.hpp: what the programs of all ranks come to: messages, rounds, bytes by tier, memory.
//
// In closed form where the algorithm has one (Algorithm::count), else by a fluid run of all
// programs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "cost/cost_model.hpp"
#include "schedule/plan.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// What the programs of all ranks come to.
struct Counted {
  std::vector<uint64_t> tier_bytes;  // by tier: out of all its groups
  uint64_t messages = 0;             // for one chunk
  uint64_t rounds = 0;               // messages in the longest chain
  uint64_t scratch_bytes = 0;        // of the rank that needs most, all chunks in flight together
  bool closed_form = false;  // above 512 ranks one of each kind stands for the others' scratch
};
// Errors: simulate()'s.
Result<Counted> count_programs(const TierTree& tree, const Request& request, const Plan& plan,
                               const CostModel& cost);

}  // namespace sennit
