// simulate.cpp: the way in: a request is checked and goes to the ranks (simulate/calls.cpp) or, for
// a long ring, to its closed form (simulate/long_ring.cpp). See simulate/simulate.hpp.
#include "simulate/simulate.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/index.hpp"
#include "simulate/long_ring.hpp"
#include "simulate/ranks.hpp"

namespace sennit {
namespace {

Status check(const TierTree& tree, const Request& request) {
  if (request.collective == Collective::send_recv)
    return {SENNIT_UNSUPPORTED, "simulate: send and recv have no schedule"};
  if (request.vector_variant && request.counts.empty())
    return {SENNIT_UNSUPPORTED,
            fmt::format("simulate: {} with counts that no rank knows", name(request.collective))};
  if (!request.counts.empty() && request.counts.size() != index(tree.ranks()))
    return invalid(
        fmt::format("simulate: {} counts for {} ranks", request.counts.size(), tree.ranks()));
  return check_size(request, tree.ranks());
}

}  // namespace

bool has_closed_form(const TierTree& tree, const Request& request, const Plan& plan) {
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  return algorithm && algorithm->turns_around_ring(request) > 0 && tree.ranks() > kLongRing;
}

Result<SimulatedTime> simulate(const TierTree& tree, const Request& request,
                               const Blueprint& blueprint, uint32_t chunks,
                               const SimulateOptions& options) {
  SENNIT_RETURN_IF_ERROR(check(tree, request));
  const simulation::GroupCall call =
      simulation::whole_tree(tree, request, std::max(1u, chunks), blueprint);
  return simulation::simulate_calls(tree, {&call, 1}, options);
}

Result<SimulatedTime> simulate(const TierTree& tree, const Request& request, const Plan& plan,
                               const SimulateOptions& options) {
  SENNIT_RETURN_IF_ERROR(check(tree, request));
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  if (!algorithm || !algorithm->applies(tree, request))
    return Status(SENNIT_NOT_FOUND, fmt::format("simulate: no algorithm '{}' for this {}",
                                                plan.algorithm, name(request.collective)));
  const std::unique_ptr<Blueprint> blueprint = algorithm->prepare(tree, request, plan.parameters);
  if (has_closed_form(tree, request, plan)) {
    SimulatedTime time = simulation::ring_time(tree, request, algorithm->turns_around_ring(request),
                                               plan.parameters.chunks, options);
    time.tiers = simulation::by_tier(tree, time.groups);
    const simulation::GroupCall call{
        &request, std::max(1u, plan.parameters.chunks), blueprint.get(), {}};
    time.scratch_bytes = simulation::scratch_bytes(call, blueprint->program(0));
    return time;
  }
  return simulate(tree, request, *blueprint, plan.parameters.chunks, options);
}

}  // namespace sennit
