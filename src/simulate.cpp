#include "simulate.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "simulate_ranks.hpp"

namespace sennit {
namespace {

Status check(const TierTree& tree, const Request& request) {
  if (request.collective == Collective::send_recv)
    return {SENNIT_UNSUPPORTED, "simulate: send and recv have no schedule"};
  if (request.vector_variant && request.counts.empty())
    return {SENNIT_UNSUPPORTED,
            fmt::format("simulate: {} with counts that no rank knows", name(request.collective))};
  if (!request.counts.empty() && request.counts.size() != static_cast<size_t>(tree.ranks()))
    return invalid(fmt::format("simulate: {} counts for {} ranks", request.counts.size(), tree.ranks()));
  return {};
}

std::vector<TierLoad> by_tier(const TierTree& tree, const std::vector<GroupLoad>& groups) {
  std::vector<TierLoad> tiers(tree.tiers.size());
  for (size_t g = 1; g < groups.size(); g++) {
    TierLoad& tier = tiers[tree.groups[g].tier];
    tier.bytes += groups[g].egress_bytes;
    const uint64_t busy_ns = std::max(groups[g].egress_busy_ns, groups[g].ingress_busy_ns);
    if (tier.busiest_group >= 0 && busy_ns <= tier.busy_ns) continue;
    tier.busy_ns = busy_ns;
    tier.busiest_group = static_cast<int>(g);
  }
  return tiers;
}

}  // namespace

Result<SimulatedTime> simulate(const TierTree& tree, const Request& request, const Blueprint& blueprint,
                               uint32_t chunks, const SimulateOptions& options) {
  SENNIT_RETURN_IF_ERROR(check(tree, request));
  const Result<simulation::Symmetry> symmetry =
      simulation::find_symmetry(tree, request, std::max(1u, chunks), blueprint, options.symmetry);
  if (!symmetry) return symmetry.status();
  simulation::World world(tree, request, chunks, options, *symmetry);
  SENNIT_RETURN_IF_ERROR(world.run());
  SimulatedTime simulated;
  simulated.time_ns = world.time_ns();
  simulated.groups = world.loads();
  simulated.tiers = by_tier(tree, simulated.groups);
  simulated.messages = world.messages();
  simulated.rank_classes = static_cast<uint32_t>(symmetry->classes.size());
  return simulated;
}

Result<SimulatedTime> simulate(const TierTree& tree, const Request& request, const Plan& plan,
                               const SimulateOptions& options) {
  SENNIT_RETURN_IF_ERROR(check(tree, request));
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  if (!algorithm || !algorithm->applies(tree, request))
    return Status(SENNIT_NOT_FOUND, fmt::format("simulate: no algorithm '{}' for this {}", plan.algorithm,
                                                name(request.collective)));
  const std::unique_ptr<Blueprint> blueprint = algorithm->prepare(tree, request, plan.parameters);
  return simulate(tree, request, *blueprint, plan.parameters.chunks, options);
}

}  // namespace sennit
