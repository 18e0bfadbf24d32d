// by_simulation.cpp: see plan/by_simulation.hpp.
#include "plan/by_simulation.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/arithmetic.hpp"
#include "collectives/algorithm.hpp"
#include "cost/rates.hpp"
#include "schedule/prepared.hpp"
#include "simulate/simulate.hpp"

namespace sennit {
namespace {

// Of more ranks nearly all candidates have too many messages, which only their programs tell.
constexpr int kMostRanks = 64;
// Of one candidate that is simulated exactly; and of all candidates together.
constexpr uint64_t kMostExactly = 2048, kMostMessages = 8 * 1024;
// The form may be wrong by as much between two candidates.
constexpr uint64_t kFarBehind = 3;
// Of a long call so many chunks are simulated, and then the second number. By then all lanes have
// been filled, and each further chunk takes as long as the one before.
constexpr uint32_t kSome = kLanes + kLanes / 2, kMore = kSome + kLanes;
// Time passes in steps of one part in so many where a candidate is not simulated exactly.
constexpr uint64_t kSteps = 512;

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

// The first `part` of so many chunks.
Request part_of(const Request& request, uint32_t part, uint32_t chunks) {
  Request some = request;
  some.count = scaled(request.count, part, chunks);
  for (uint64_t& count : some.counts) count = scaled(count, part, chunks);
  return some;
}

// Simulates one candidate after the other, for as long as messages are left.
class Simulations {
 public:
  explicit Simulations(const Setting& setting)
      : setting_(setting), network_(at_goodput(setting)), request_(setting.request) {
    // Whether a call is in place the ranks need not agree on.
    request_.in_place = request_.collective == Collective::broadcast;
    how_.cost = setting.cost;
    how_.queues = true;
  }

  // What the candidate takes; nothing where it has too many messages.
  std::optional<uint64_t> time_ns(const Candidate& candidate) {
    const uint32_t chunks = candidate.parameters.chunks;
    const bool in_parts = chunks > kSome + kMore;
    // A message for each other rank and chunk there is at least.
    const auto others = static_cast<uint64_t>(setting_.tree.ranks()) - 1;
    if (others * std::min(chunks, kSome + kMore) > left_) return std::nullopt;
    const std::unique_ptr<Blueprint> blueprint =
        find_algorithm(candidate.algorithm)->prepare(setting_.tree, request_, candidate.parameters);
    if (chunks * others <= kMostExactly) {
      const uint64_t left = left_;
      const auto exact_ns =
          simulated_ns(*blueprint, request_, chunks, std::min(kMostExactly, left), 0);
      // What was refused for want of messages left would be so again.
      if (exact_ns || left <= kMostExactly) return exact_ns;
    }
    const uint64_t grain_ns =
        scaled(candidate.predicted_ns, std::min(chunks, kMore), chunks) / kSteps;
    if (!in_parts) return simulated_ns(*blueprint, request_, chunks, left_, grain_ns);
    const auto part_ns = [&](uint32_t part, uint64_t most) {
      return simulated_ns(*blueprint, part_of(request_, part, chunks), part, most, grain_ns);
    };
    const std::optional<uint64_t> more = part_ns(kMore, left_);
    // Whose half of the work is done is not given up for want of messages.
    const std::optional<uint64_t> some = more ? part_ns(kSome, kMostMessages) : std::nullopt;
    if (!some) return std::nullopt;
    const Wide further = *more - std::min(*some, *more);
    return saturated(*more + further * (chunks - kMore) / (kMore - kSome));
  }

 private:
  std::optional<uint64_t> simulated_ns(const Blueprint& blueprint, const Request& request,
                                       uint32_t chunks, uint64_t most, uint64_t grain_ns) {
    how_.most_messages = most;
    how_.grain_ns = grain_ns;
    const Result<SimulatedTime> simulated = simulate(network_, request, blueprint, chunks, how_);
    if (!simulated) return std::nullopt;
    left_ -= std::min(left_, simulated->messages);
    return simulated->time_ns;
  }

  const Setting& setting_;
  const TierTree network_;
  Request request_;
  SimulateOptions how_;
  uint64_t left_ = kMostMessages;
};

}  // namespace

void time_by_simulation(const Setting& setting, std::vector<Candidate>* candidates) {
  if (candidates->size() < 2 || !is_wanted(setting)) return;
  std::vector<Candidate*> by_form;
  for (Candidate& candidate : *candidates) by_form.push_back(&candidate);
  std::ranges::stable_sort(by_form, {}, &Candidate::predicted_ns);
  Simulations simulations(setting);
  const uint64_t form_ns = std::max<uint64_t>(1, by_form.front()->predicted_ns);
  uint64_t first_ns = 0, best_ns = 0;
  for (Candidate* candidate : by_form) {
    const bool wanted =
        first_ns == 0 || candidate->predicted_ns <= saturated(Wide{best_ns} * kFarBehind);
    const std::optional<uint64_t> ns = wanted ? simulations.time_ns(*candidate) : std::nullopt;
    if (first_ns == 0) {
      if (!ns) return;
      best_ns = first_ns = std::max<uint64_t>(*ns, 1);
    }
    if (ns) best_ns = std::min(best_ns, *ns);
    // One that is not simulated is taken to be off by as much as the first, if that takes longer.
    const Wide as_first = Wide{candidate->predicted_ns} * std::max(first_ns, form_ns) / form_ns;
    candidate->predicted_ns = ns ? *ns : saturated(as_first);
  }
}

}  // namespace sennit
