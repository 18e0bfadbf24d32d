// expected.hpp: how long messages between two ranks should take in a call that runs a plan, by the
// simulator.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "collectives/algorithm.hpp"
#include "record/notes.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::diagnose {

// By edge, what a schedule takes by the simulator, and the whole call.
struct ExpectedPlan {
  std::map<std::pair<int, int>, double> service_ns;  // by positions
  double time_ns = 0;
  size_t messages = 0;  // that were simulated
};

// Of more ranks the simulator has a coarser grain.
inline constexpr int kMostRanksFinely = 32;

// The plan that `blueprint` was made of, on this tree. The more ranks, the less exactly, so that it
// takes a second at most of 1,024 equal ones; of a long ring the closed form is taken. `took_ns`:
// what its calls take, where that is known, as a measure of how exactly. Empty where it cannot be
// simulated.
ExpectedPlan expected_of(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
                         double took_ns);

// The schedule that was made of `tree`, in `chunks`, message by message. Empty where it cannot be
// simulated. `one_for_all`: where all ranks do the same one is simulated for all. `grain_ns`:
// SimulateOptions::grain_ns.
ExpectedPlan expected_edges(const TierTree& tree, const Request& request,
                            const Blueprint& blueprint, uint32_t chunks, bool one_for_all,
                            uint64_t grain_ns = 0);

}  // namespace sennit::diagnose
