// planner.cpp: compares every algorithm's settings by predicted time and keeps the best.
//
// A candidate's time is that of its pipeline (plan/pipeline.hpp), with what shared cores add to it
// (plan/shared_cores.hpp) unless SharedCores::counted is off; that of a call on unlike groups is
// the simulator's (plan/by_simulation.hpp). Where rates between hosts are unknown it is not the
// time alone that decides. Ties go to the earlier candidate (algorithms by name, candidates as
// listed, fewer chunks), so all ranks choose the same. Cost: one estimate per candidate, and those
// simulations.
#include "plan/planner.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/arithmetic.hpp"
#include "collectives/algorithm.hpp"
#include "cost/rates.hpp"
#include "plan/by_simulation.hpp"
#include "plan/pipeline.hpp"
#include "plan/shared_cores.hpp"

namespace sennit {
namespace {

constexpr uint64_t kPlanHash = 0x73656e6e6974;  // "sennit": what a plan's hash begins with

std::string known_names() {
  std::vector<std::string_view> names;
  for (const Algorithm* a : algorithms()) names.push_back(a->name());
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string names_that_apply(const TierTree& tree, const Request& request) {
  std::vector<std::string_view> names;
  for (const Algorithm* a : algorithms())
    if (a->applies(tree, request)) names.push_back(a->name());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Without in_place: ranks may differ in that, it changes no message.
uint64_t plan_hash(const Request& request, const TierTree& tree, const Plan& plan) {
  uint64_t hash = mix(kPlanHash, tree.fingerprint());
  for (const uint64_t x :
       {static_cast<uint64_t>(request.collective), static_cast<uint64_t>(request.type),
        static_cast<uint64_t>(request.op), static_cast<uint64_t>(request.root), request.count,
        static_cast<uint64_t>(request.vector_variant), uint64_t{request.counts.size()}})
    hash = mix(hash, x);
  for (const uint64_t c : request.counts) hash = mix(hash, c);
  for (const char c : plan.algorithm) hash = mix(hash, static_cast<unsigned char>(c));
  hash = mix(mix(hash, plan.parameters.chunks), plan.parameters.whole_stages);
  for (const uint16_t r : plan.parameters.radices) hash = mix(hash, r);
  return hash;
}

// Between two ranks there is nothing to choose: the one sends straight to the other. Which two is
// not known, so the narrowest boundary is taken to lie between them.
void plan_point_to_point(const Request& request, const TierTree& tree, const CostModel& cost,
                         Plan& plan) {
  const uint64_t rate = narrowest_rate(tree, cost);
  plan.algorithm = straight_name();
  const uint64_t bytes = message_bytes(request, 2);
  plan.predicted_ns = saturated(Wide{latency_of_bytes_ns(tree, 0, bytes, cost)} + cost.post_ns +
                                Wide{bytes} * kNsPerSecond / rate);
  plan.candidates.push_back({plan.algorithm, plan.parameters, plan.predicted_ns, "", 0});
}

// Ok where nothing is forced, or an algorithm that can do the request.
Status check_forced(const Request& request, const TierTree& tree, const PlanOptions& options) {
  SENNIT_RETURN_IF_ERROR(check_algorithm(options.algorithm));
  if (options.algorithm.empty() || find_algorithm(options.algorithm)->applies(tree, request))
    return {};
  return {
      SENNIT_UNSUPPORTED,
      fmt::format("algorithm '{}' cannot do this {}: SENNIT_ALGORITHM may be one of {}",
                  options.algorithm, name(request.collective), names_that_apply(tree, request))};
}

// Where sums must be reproducible, any algorithm that gives them will do.
bool wanted(const Algorithm& algorithm, const Setting& setting, const PlanOptions& options) {
  const bool named = options.algorithm.empty() || algorithm.name() == options.algorithm;
  return (named || options.reproducible) && algorithm.applies(setting.tree, setting.request);
}

Pipeline predict(const Algorithm& algorithm, const Parameters& parameters, const Setting& setting,
                 const Estimate& estimate) {
  Pipeline pipeline(setting, estimate);
  share_cores(setting, algorithm, parameters, estimate, &pipeline);
  return pipeline;
}

// With the number of chunks that is fastest, the least of those; or one for each number.
void add_candidates(const Algorithm& algorithm, const Parameters& parameters,
                    const PlanOptions& options, const Setting& setting, const Estimate& estimate,
                    std::vector<Candidate>* candidates, std::vector<Wide>* burdens) {
  const uint64_t least = options.every_chunk ? kLeastSearchedBytes : kLeastChunkBytes;
  const std::vector<uint32_t> counts =
      options.chunk_bytes == 0
          ? chunk_counts(algorithm, setting.request, setting.tree, least)
          : chunks_of(algorithm, setting.request, setting.tree.ranks(), options.chunk_bytes);
  const Pipeline pipeline = predict(algorithm, parameters, setting, estimate);
  Candidate best{std::string(algorithm.name()), parameters, ~uint64_t{0}, "", 0};
  for (const uint32_t chunks : counts) {
    Candidate one{best.algorithm, parameters, pipeline.ns(chunks), "", 0};
    one.parameters.chunks = chunks;
    if (options.every_chunk) candidates->push_back(one);
    if (one.predicted_ns < best.predicted_ns) best = std::move(one);
  }
  if (!options.every_chunk) candidates->push_back(std::move(best));
  burdens->resize(candidates->size(), pipeline.burden_ns);
}

// Of an assumed fabric nobody knows which tier is the slowest. So what counts is a candidate's time
// and a quarter of that for which it keeps all tiers of the network busy together. Returns the
// place of the best.
size_t lightest(const std::vector<Candidate>& candidates, const std::vector<Wide>& burdens) {
  constexpr unsigned kPart = 4;
  const auto cost = [&](size_t i) { return candidates[i].predicted_ns + burdens[i] / kPart; };
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); i++)
    if (cost(i) < cost(best)) best = i;
  return best;
}

// The one at `choice` first, then the fastest, and they say how much slower they are.
void rank_candidates(size_t choice, std::vector<Candidate>* candidates) {
  std::rotate(candidates->begin(), candidates->begin() + static_cast<ptrdiff_t>(choice),
              candidates->begin() + static_cast<ptrdiff_t>(choice) + 1);
  std::ranges::stable_sort(std::span(*candidates).subspan(1), {}, &Candidate::predicted_ns);
  const uint64_t best_ns = std::max<uint64_t>(1, candidates->front().predicted_ns);
  for (Candidate& c : std::span(*candidates).subspan(1)) {
    const Wide percent = Wide{c.predicted_ns} * 100 / best_ns;
    c.rejected = c.predicted_ns < best_ns ? std::string("busier over all tiers")
                 : percent <= 100         ? std::string("no faster")
                                          : fmt::format("{}.{:02} times the choice",
                                                        static_cast<uint64_t>(percent / 100),
                                                        static_cast<uint64_t>(percent % 100));
  }
}

}  // namespace

std::string_view straight_name() {
  for (const Algorithm* a : algorithms())
    if (a->sends_straight()) return a->name();
  return {};
}

Status check_algorithm(const std::string& name) {
  if (name.empty() || find_algorithm(name)) return {};
  return {SENNIT_NOT_FOUND,
          fmt::format("there is no algorithm '{}': SENNIT_ALGORITHM may be one of {}", name,
                      known_names())};
}

Result<Plan> make_plan(const Request& request, const TierTree& tree, const PlanOptions& options) {
  SENNIT_RETURN_IF_ERROR(check_size(request, tree.ranks()));
  Plan plan;
  plan.asked_for = !options.algorithm.empty() || options.chunk_bytes != 0;
  plan.bound = lower_bound(request, tree);
  if (request.collective == Collective::send_recv) {
    plan_point_to_point(request, tree, options.cost, plan);
    plan.hash = plan_hash(request, tree, plan);
    return plan;
  }
  SENNIT_RETURN_IF_ERROR(check_forced(request, tree, options));
  const Setting setting(tree, request, options.cost);
  std::vector<Wide> burdens;  // by candidate
  for (const Algorithm* algorithm : algorithms()) {
    if (!wanted(*algorithm, setting, options)) continue;
    std::vector<Parameters> candidates = algorithm->candidates(tree, request);
    if (options.reproducible)
      std::erase_if(candidates, [&](const Parameters& parameters) {
        return !algorithm->fixes_order(request, parameters);
      });
    const std::vector<Estimate> estimates =
        algorithm->estimates(tree, request, candidates, options.cost);
    for (size_t i = 0; i < candidates.size(); i++)
      add_candidates(*algorithm, candidates[i], options, setting, estimates[i], &plan.candidates,
                     &burdens);
  }
  if (plan.candidates.empty())
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("no algorithm can do this {}", name(request.collective)));
  const bool assumed = !setting.one_host && !network_rates_known(tree);
  if (!assumed) time_by_simulation(setting, &plan.candidates);
  const auto fastest = std::ranges::min_element(plan.candidates, {}, &Candidate::predicted_ns);
  rank_candidates(assumed ? lightest(plan.candidates, burdens)
                          : static_cast<size_t>(fastest - plan.candidates.begin()),
                  &plan.candidates);
  choose(request, tree, 0, &plan);
  return plan;
}

void choose(const Request& request, const TierTree& tree, size_t choice, Plan* plan) {
  const Candidate& candidate = plan->candidates[choice];
  plan->algorithm = candidate.algorithm;
  plan->parameters = candidate.parameters;
  plan->predicted_ns = candidate.predicted_ns;
  plan->hash = plan_hash(request, tree, *plan);
}

uint64_t predicted_ns(const Request& request, const TierTree& tree, const PlanOptions& options,
                      std::string_view algorithm, const Parameters& parameters) {
  const Algorithm* found = find_algorithm(algorithm);
  SENNIT_CHECK(found && found->applies(tree, request));
  const Estimate estimate = found->estimate(tree, request, parameters, options.cost);
  return predict(*found, parameters, Setting(tree, request, options.cost), estimate)
      .ns(parameters.chunks);
}

}  // namespace sennit
