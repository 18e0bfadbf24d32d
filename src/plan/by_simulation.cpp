// by_simulation.cpp: see plan/by_simulation.hpp.
#include "plan/by_simulation.hpp"

#include <algorithm>
#include <memory>

#include "base/arithmetic.hpp"
#include "collectives/algorithm.hpp"
#include "cost/rates.hpp"
#include "simulate/simulate.hpp"

namespace sennit {
namespace {

// Of more ranks nearly all candidates have too many messages, which only their programs tell.
constexpr int kMostRanks = 32;
constexpr uint64_t kMostMessages = 2048;  // of one candidate, all chunks together
// The form may be wrong by as much between two candidates.
constexpr uint64_t kFarBehind = 3;

bool is_wanted(const Setting& setting) {
  // Ranks that share cores wait for them, which the simulator knows nothing of.
  if (setting.one_host || setting.cost.shared_cores.crowded()) return false;
  return setting.tree.ranks() <= kMostRanks && !setting.tree.is_uniform();
}

// Its boundaries carry what is left for payload: the simulator moves nothing else. Two candidates
// of which only one is simulated must be of the same network.
TierTree at_goodput(const Setting& setting) {
  TierTree tree = setting.tree;
  const GroupRates rates = planning_rates(tree, setting.cost);
  for (size_t i = 1; i < tree.groups.size(); i++) {
    Group& group = tree.groups[i];
    const auto payload = [&](uint64_t bytes_per_s) -> Capacity {
      const Wide left = Wide{bytes_per_s} * setting.tiers[group.tier].goodput_permille / kPermille;
      return {std::max<uint64_t>(1, saturated(left)), Provenance::declared};
    };
    group.egress = payload(rates.egress[i]);
    group.ingress = payload(rates.ingress[i]);
  }
  return tree;
}

}  // namespace

void time_by_simulation(const Setting& setting, std::vector<Candidate>* candidates) {
  if (candidates->size() < 2 || !is_wanted(setting)) return;
  // Whether a call is in place the ranks need not agree on.
  Request request = setting.request;
  request.in_place = request.collective == Collective::broadcast;
  SimulateOptions how;
  how.cost = setting.cost;
  how.most_messages = kMostMessages;
  how.queues = true;
  const TierTree network = at_goodput(setting);
  const auto fastest = std::ranges::min_element(*candidates, {}, &Candidate::predicted_ns);
  const uint64_t most_ns = saturated(Wide{fastest->predicted_ns} * kFarBehind);
  const auto others = static_cast<uint64_t>(setting.tree.ranks()) - 1;
  for (Candidate& candidate : *candidates) {
    // A message for each other rank and chunk there is at least.
    const bool many = candidate.parameters.chunks * others > kMostMessages;
    if (many || candidate.predicted_ns > most_ns) continue;
    const std::unique_ptr<Blueprint> blueprint =
        find_algorithm(candidate.algorithm)->prepare(setting.tree, request, candidate.parameters);
    const Result<SimulatedTime> simulated =
        simulate(network, request, *blueprint, candidate.parameters.chunks, how);
    if (simulated) candidate.predicted_ns = simulated->time_ns;
  }
}

}  // namespace sennit
