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

// Slots are allocated once a lane.
uint64_t scratch_bytes(const simulation::Symmetry& symmetry, const Request& request, uint32_t chunks) {
  Layout layout;
  layout.count = request.count;
  if (!request.counts.empty()) layout.counts = request.counts.data();
  uint64_t most = 0;
  for (const simulation::Symmetry::RankClass& kind : symmetry.classes) {
    const Program& program = kind.prepared->program;
    uint64_t elements = 0;
    for (const Slot& slot : program.slots)
      for (uint32_t r = slot.first_range; r < slot.first_range + slot.ranges; r++)
        elements += layout.length(program.ranges[r], {0, chunks});
    most = std::max(most, elements);
  }
  return most * type_bytes(request.type) * std::min(chunks, simulation::kLanes);
}

}  // namespace

Result<SimulatedTime> simulate(const TierTree& tree, const Request& request, const Blueprint& blueprint,
                               uint32_t chunks, const SimulateOptions& options) {
  SENNIT_RETURN_IF_ERROR(check(tree, request));
  chunks = std::max(1u, chunks);
  const Result<simulation::Symmetry> symmetry =
      simulation::find_symmetry(tree, request, chunks, blueprint, options.symmetry);
  if (!symmetry) return symmetry.status();
  const uint32_t in_flight = chunks;
  if (options.fluid) chunks = 1;
  simulation::World world(tree, request, chunks, options, *symmetry);
  SENNIT_RETURN_IF_ERROR(world.run());
  SimulatedTime simulated;
  simulated.time_ns = world.time_ns();
  simulated.groups = world.loads();
  simulated.tiers = by_tier(tree, simulated.groups);
  simulated.messages = world.messages();
  simulated.scratch_bytes = scratch_bytes(*symmetry, request, in_flight);
  simulated.rank_classes = static_cast<uint32_t>(symmetry->classes.size());
  if (options.fluid) {
    simulated.latency_ns = simulated.time_ns;
    simulated.time_ns += world.least_time_ns();
    SimulateOptions counting = options;
    counting.every_latency_ns = 1;
    simulation::World counter(tree, request, chunks, counting, *symmetry);
    SENNIT_RETURN_IF_ERROR(counter.run());
    simulated.rounds = counter.time_ns();
  }
  return simulated;
}

Result<SimulatedTime> simulate(const TierTree& tree, const Request& request, const Plan& plan,
                               const SimulateOptions& options) {
  SENNIT_RETURN_IF_ERROR(check(tree, request));
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  if (!algorithm || !algorithm->applies(tree, request))
    return Status(SENNIT_NOT_FOUND, fmt::format("simulate: no algorithm '{}' for this {}", plan.algorithm,
                                                name(request.collective)));
  if (plan.algorithm == "ring" && tree.ranks() > kLongRing) {
    SimulatedTime time = simulation::ring_time(tree, request, plan.parameters.chunks, options);
    time.tiers = by_tier(tree, time.groups);
    return time;
  }
  const std::unique_ptr<Blueprint> blueprint = algorithm->prepare(tree, request, plan.parameters);
  return simulate(tree, request, *blueprint, plan.parameters.chunks, options);
}

}  // namespace sennit
