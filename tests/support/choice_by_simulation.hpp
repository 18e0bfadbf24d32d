// choice_by_simulation.hpp: how good the planner's choice is by the simulator, and requests to ask
// it for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "plan/planner.hpp"
#include "schedule/layout.hpp"
#include "simulate/simulate.hpp"

namespace sennit_test {

// Of `bytes` in all, for whichever collective; at least an element of each block.
inline sennit::Request request_of(sennit::Collective collective, uint64_t bytes, int ranks,
                                  int root) {
  using sennit::Collective;
  sennit::Request request;
  request.collective = collective;
  request.count = bytes / type_bytes(request.type);
  const bool one_vector = collective == Collective::all_reduce ||
                          collective == Collective::broadcast || collective == Collective::reduce;
  if (!one_vector)
    request.count = std::max<uint64_t>(1, request.count / static_cast<uint64_t>(ranks));
  if (has_root(collective)) request.root = root % ranks;
  request.in_place = collective == Collective::broadcast;  // as programs mostly call it
  return request;
}

// What the planner chose, and how many times longer than the fastest candidate it takes.
struct JudgedChoice {
  std::string algorithm;
  double behind = 0;
};
// Both times by the simulator. Candidates predicted to take so many times the choice's time are
// not simulated.
inline JudgedChoice judge_choice(const sennit::TierTree& tree, const sennit::Request& request,
                                 const sennit::PlanOptions& options,
                                 double far_behind = std::numeric_limits<double>::infinity()) {
  const sennit::Result<sennit::Plan> plan = make_plan(request, tree, options);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  if (!plan) return {};
  sennit::SimulateOptions how;
  how.cost = options.cost;
  how.queues = true;
  const double most_ns = far_behind * static_cast<double>(plan->predicted_ns);
  uint64_t chosen_ns = 0, best_ns = ~uint64_t{0};
  for (size_t i = 0; i < plan->candidates.size(); i++) {
    if (static_cast<double>(plan->candidates[i].predicted_ns) > most_ns) continue;
    sennit::Plan candidate = *plan;
    choose(request, tree, i, &candidate);
    const sennit::Result<sennit::SimulatedTime> simulated = simulate(tree, request, candidate, how);
    EXPECT_TRUE(simulated.ok()) << simulated.status().text();
    if (!simulated) return {};
    if (i == 0) chosen_ns = simulated->time_ns;
    best_ns = std::min(best_ns, simulated->time_ns);
  }
  return {plan->algorithm, static_cast<double>(chosen_ns) / static_cast<double>(best_ns)};
}

}  // namespace sennit_test
