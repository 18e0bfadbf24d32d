// One run of the simulator: all calls at once on one tree, or twice under --fluid, which counts the
// rounds as well; and what the run says of tiers and memory.
#include <algorithm>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "simulate/ranks.hpp"

namespace sennit::simulation {
namespace {

// Of the rank that needs most in all its calls together.
uint64_t most_scratch_bytes(const TierTree& tree, std::span<const GroupCall> calls,
                            const Symmetry& symmetry) {
  std::vector<uint64_t> of_class;
  for (const Symmetry::RankClass& kind : symmetry.classes)
    of_class.push_back(scratch_bytes(calls[kind.call], kind.prepared->program));
  std::vector<uint64_t> of_position(index(tree.ranks()), 0);
  size_t member = 0;
  for (const GroupCall& call : calls)
    for (const int32_t position : call.positions)
      of_position[index(position)] += of_class[symmetry.class_of_member[member++]];
  return *std::max_element(of_position.begin(), of_position.end());
}

// By SimulateOptions::most_messages.
Status check_messages(const World& world, int ranks, uint64_t most) {
  if (world.messages_to_simulate() <= most) return {};
  return invalid(fmt::format(
      "{:.2g} messages of {} ranks are to be simulated, of one for all that do the "
      "same, and {:.2g} are the most: use --ranks, --fluid, fewer --chunks or "
      "another --algorithm",
      static_cast<double>(world.messages_to_simulate()), ranks, static_cast<double>(most)));
}

}  // namespace

uint64_t scratch_bytes(const GroupCall& call, const Program& program) {
  const Layout layout = call.layout();
  uint64_t elements = 0;
  for (const Slot& slot : program.slots)
    for (uint32_t r = slot.first_range; r < slot.first_range + slot.ranges; r++)
      elements += layout.length(program.ranges[r], {0, call.chunks});
  return elements * type_bytes(call.request->type) * std::min(call.chunks, kLanes);
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

Result<SimulatedTime> simulate_calls(const TierTree& tree, std::span<const GroupCall> calls,
                                     const SimulateOptions& options,
                                     std::vector<uint64_t>* calls_ns) {
  const Result<Symmetry> symmetry = find_symmetry(tree, calls, options);
  if (!symmetry) return symmetry.status();
  World world(tree, calls, options, *symmetry);
  SENNIT_RETURN_IF_ERROR(check_messages(world, tree.ranks(), options.most_messages));
  SENNIT_RETURN_IF_ERROR(world.run());
  SimulatedTime simulated;
  simulated.time_ns = world.time_ns();
  simulated.groups = world.loads();
  simulated.tiers = by_tier(tree, simulated.groups);
  simulated.messages = world.messages();
  simulated.scratch_bytes = most_scratch_bytes(tree, calls, *symmetry);
  simulated.rank_classes = static_cast<uint32_t>(symmetry->classes.size());
  simulated.by_kind = symmetry->by_kind;
  if (options.fluid) {
    simulated.latency_ns = simulated.time_ns;
    simulated.time_ns = saturated(Wide{simulated.time_ns} + world.least_time_ns());
    SimulateOptions counting = options;
    counting.every_latency_ns = 1;
    World counter(tree, calls, counting, *symmetry);
    SENNIT_RETURN_IF_ERROR(counter.run());
    simulated.rounds = counter.time_ns();
  }
  if (calls_ns == nullptr) return simulated;
  size_t member = 0;
  for (const GroupCall& call : calls) {
    uint64_t ns = 0;
    for (size_t i = 0; i < call.positions.size(); i++)
      ns = std::max(ns, world.time_ns(symmetry->class_of_member[member++]));
    calls_ns->push_back(options.fluid ? simulated.time_ns : ns);
  }
  return simulated;
}

}  // namespace sennit::simulation
