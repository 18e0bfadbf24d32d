// `sennit plan --json`: keys in src/command/plan/OUTPUT.md; they stay. Times in microseconds;
// unknown figures are null.
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "command/plan/plan.hpp"
#include "cost/rates.hpp"

namespace sennit::plan {
namespace {

using Json = nlohmann::ordered_json;

Json parameters_of(const Parameters& parameters) {
  return {{"chunks", parameters.chunks},
          {"radices", parameters.radices},
          {"whole_stages", parameters.whole_stages}};
}

Json capacity_of(const Capacity& capacity) {
  return capacity.known() ? Json(capacity.bytes_per_s) : Json();
}

Json tiers_of(const Problem& problem, const Plan& plan, const Facts& facts) {
  const TierTree& tree = problem.tree;
  const CostModel& cost = problem.options.cost;
  Json tiers = Json::array();
  for (const TierRow& row : tier_rows(problem, plan)) {
    const int first = row.first;
    const bool inner = tree.groups[static_cast<size_t>(first)].children > 0;
    tiers.push_back(
        {{"tier", tree.tiers[row.tier].name},
         {"groups", row.groups},
         {"egress_bytes_per_s_of_first",
          capacity_of(tree.groups[static_cast<size_t>(row.first)].egress)},
         {"latency_us", inner ? Json(us(planning_latency_ns(tree, first, cost))) : Json()},
         {"latency_assumed",
          inner ? Json(latency_source(tree, first, cost) != LatencySource::declared) : Json()},
         {"bound_us", plan.bound.known && row.bound_ns ? Json(us(row.bound_ns)) : Json()},
         {"bytes_out", facts.counted ? Json(facts.programs.tier_bytes[row.tier]) : Json()}});
  }
  return tiers;
}

}  // namespace

std::string json_text(const Problem& problem, const Plan& plan, const Facts& facts) {
  const auto counted = [&](uint64_t value) { return facts.counted ? Json(value) : Json(); };
  Json candidates = Json::array();
  for (const Candidate& c : plan.candidates)
    candidates.push_back({{"algorithm", c.algorithm},
                          {"parameters", parameters_of(c.parameters)},
                          {"predicted_us", us(c.predicted_ns)},
                          {"rejected", c.rejected.empty() ? Json() : Json(c.rejected)}});
  const CostModel& cost = problem.options.cost;
  const Json json = {
      {"collective", name(problem.request.collective)},
      {"bytes", problem.bytes},
      {"datatype", name(problem.request.type)},
      {"op", problem.request.reduces() ? Json(name(problem.request.op)) : Json()},
      {"ranks", problem.tree.ranks()},
      {"fabric", problem.fabric},
      {"latency_us", us(planning_latency_ns(problem.tree, 0, cost))},
      {"latency_assumed", latency_source(problem.tree, 0, cost) != LatencySource::declared},
      {"capacities_known", !problem.assumed()},
      {"model",
       {{"post_us", us(cost.post_ns)},
        {"latency_us", us(cost.latency_ns)},
        {"rdma_latency_us", us(cost.rdma_latency_ns)},
        {"switch_us", us(cost.switch_ns)},
        {"eager_bytes", cost.eager_bytes},
        {"asking_latencies", cost.asking_latencies},
        {"reduce_bytes_per_s", cost.reduce_bytes_per_s},
        {"on_gpus", problem.on_gpus}}},
      {"bound_us", plan.bound.known ? Json(us(plan.bound.time_ns)) : Json()},
      {"binding_tier", plan.bound.known && plan.bound.binding_tier >= 0
                           ? Json(tier_name(problem.tree, plan.bound.binding_tier))
                           : Json()},
      {"bound_why", plan.bound.why},
      {"tiers", tiers_of(problem, plan, facts)},
      {"algorithm", plan.algorithm},
      {"parameters", parameters_of(plan.parameters)},
      {"predicted_us", us(plan.predicted_ns)},
      {"simulated_us", facts.simulated_ns > 0 ? Json(us(facts.simulated_ns)) : Json()},
      {"rounds_per_chunk", counted(facts.programs.rounds)},
      {"messages_per_chunk", counted(facts.programs.messages)},
      {"scratch_bytes", counted(facts.programs.scratch_bytes)},
      {"candidates", candidates}};
  return json_to_text(json, 2) + "\n";
}

}  // namespace sennit::plan
