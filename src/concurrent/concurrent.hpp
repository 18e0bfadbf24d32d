// concurrent.hpp: several collectives at the same time on one tier tree: the process groups of a
// training job, which share the uplinks.
//
// Every group runs its request among its own members. It is planned with its part of every capacity
// that others use as well (plan/groups/share.hpp), and of the few best plans the one is kept with
// which the set is fastest, as communicators do that time theirs in early calls. set_bound() says
// what the whole set needs at least: what all of them must carry over a boundary, over its
// capacity. A rank may be in groups of several calls; each of them has a processor of its own then,
// which is too kind to it. A message of a pipeline from one rank to another is a broadcast in a
// group of two. Pure and deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/groups/share.hpp"
#include "plan/planner.hpp"
#include "simulate/simulate.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// Ok where every group's positions exist and are distinct, root and counts fit the group, and the
// call has a schedule of all ranks. Names the call and the group.
Status check_calls(const TierTree& tree, std::span<const ConcurrentCall> calls);

// The least time in which any schedules can do all calls, each group's members alone sending and
// receiving. By tier and group as lower_bound() says it; the calls must be right (check_calls).
// Cost: O(members * depth) and one lower_bound() for each kind of group.
Bound set_bound(const TierTree& tree, std::span<const ConcurrentCall> calls);

// How the groups of a set are planned.
struct SetPlanning {
  // each group plans with its part of what others use too; false: as if it were alone
  bool shares = true;
  int tries = 5;  // so many plans of each are simulated, the n-th best of all at a time; fluid: one
};

// How long a set took, with the plans that were kept.
struct SimulatedSet {
  struct Choice {  // one plan, for all groups of a call that look alike
    size_t call = 0;
    int groups = 0, ranks = 0;  // how many groups, of how many ranks each
    Plan plan;
  };
  SimulatedTime all;  // of the set, on the whole tree
  // by call: until its last group is done; fluid: no less than the set takes
  std::vector<uint64_t> call_ns;
  std::vector<Choice> choices;
};

// All calls begin at 0. The model's cost is options.cost for planning as well. Errors:
// check_calls', an algorithm that does not apply, and a ring of more than 1,024 ranks, which is not
// simulated beside others.
Result<SimulatedSet> simulate_concurrent(const TierTree& tree,
                                         std::span<const ConcurrentCall> calls,
                                         const SimulateOptions& options,
                                         PlanOptions plan_options = {}, SetPlanning planning = {});

}  // namespace sennit
