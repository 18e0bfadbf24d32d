// count.cpp: see simulate/count.hpp.
#include "simulate/count.hpp"

#include <algorithm>
#include <numeric>

#include "base/index.hpp"
#include "collectives/algorithm.hpp"
#include "simulate/ranks.hpp"

namespace sennit {
namespace {

constexpr int kFew = 512;  // so many ranks are looked at one by one

uint64_t scratch_bytes(const TierTree& tree, const Request& request, const Plan& plan,
                       std::vector<int> positions) {
  if (positions.empty()) return 0;
  if (tree.ranks() <= kFew) {
    positions.resize(index(tree.ranks()));
    std::iota(positions.begin(), positions.end(), 0);
  }
  const std::unique_ptr<Blueprint> blueprint =
      find_algorithm(plan.algorithm)->prepare(tree, request, plan.parameters);
  const simulation::GroupCall call{
      &request, std::max(1u, plan.parameters.chunks), blueprint.get(), {}};
  uint64_t most = 0;
  for (const int position : positions)
    most = std::max(most, simulation::scratch_bytes(call, blueprint->program(position)));
  return most;
}

}  // namespace

Result<Counted> count_programs(const TierTree& tree, const Request& request, const Plan& plan,
                               const CostModel& cost) {
  SENNIT_RETURN_IF_ERROR(check_size(request, tree.ranks()));
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  if (algorithm && algorithm->applies(tree, request))
    if (const std::optional<Counts> counts = algorithm->count(tree, request, plan.parameters))
      return Counted{counts->tier_bytes, counts->messages, counts->rounds,
                     scratch_bytes(tree, request, plan, counts->kinds), true};
  SimulateOptions options;
  options.fluid = true;
  options.every_rank_up_to = tree.ranks();  // counts are exact
  options.cost = cost;
  const Result<SimulatedTime> fluid = simulate(tree, request, plan, options);
  if (!fluid) return fluid.status();
  Counted counted{{}, fluid->messages, fluid->rounds, fluid->scratch_bytes, false};
  for (const TierLoad& tier : fluid->tiers) counted.tier_bytes.push_back(tier.bytes);
  return counted;
}

}  // namespace sennit
