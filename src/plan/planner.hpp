// planner.hpp: which algorithm, with which parameters, for a Request on a TierTree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cost/cost_model.hpp"
#include "plan/bound.hpp"
#include "schedule/plan.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// What the planner is told beside request and tree: the same on every rank.
struct PlanOptions {
  std::string algorithm;     // force this one; empty: choose
  uint64_t chunk_bytes = 0;  // force; 0: choose
  // only what sums in an order that the tree alone fixes, whatever the size and the chunks
  bool reproducible = false;
  // A candidate for every number of chunks, also of smaller chunks than are compared otherwise, in
  // place of the best number alone: what a search compares (`sennit tune --every-chunk`).
  bool every_chunk = false;
  CostModel cost;
};

// What the plan of a send_recv is called: as the algorithm that sends straight. Empty: there is
// none.
std::string_view straight_name();

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
