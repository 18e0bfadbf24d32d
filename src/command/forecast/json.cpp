// `sennit job --json`: the keys stay. Seconds, bytes, FLOPs; unknown figures are null.
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "command/forecast/job.hpp"
#include "cost/rates.hpp"

namespace sennit::forecast {
namespace {

using Json = nlohmann::ordered_json;

Json known(double value) { return value > 0 ? Json(value) : Json(); }

Json step_of(const StepTime& s) {
  return {{"seconds", s.total},
          {"mfu", s.mfu},
          {"tokens_per_s", s.tokens_per_s},
          {"matmul_s", s.matmul},
          {"attention_s", s.attention},
          {"elementwise_s", s.elementwise},
          {"tensor_s", s.tensor},
          {"context_s", s.context},
          {"bubble_s", s.bubble},
          {"pipeline_s", s.pipeline},
          {"data_s", s.data},
          {"data_hidden_s", s.data_hidden},
          {"optimizer_s", s.optimizer}};
}

Json memory_json(const Memory& m, double there) {
  return {{"weights", m.weights},
          {"gradients", m.gradients},
          {"first_moment", m.first_moment},
          {"second_moment", m.second_moment},
          {"masters", m.masters},
          {"activations", m.activations},
          {"buffers", m.buffers},
          {"runtime_assumed", m.runtime},
          {"total", m.total()},
          {"available", there},
          {"layers_in_flight", m.layers_in_flight}};
}

Json tiers_of(const Problem& problem, const SetBound& bound) {
  Json tiers = Json::object();
  for (size_t t = 0; t < bound.tier_seconds.size(); t++)
    if (bound.tier_seconds[t] > 0) tiers[problem.tree.tiers[t].name] = bound.tier_seconds[t];
  return tiers;
}

// Of a message within the first group of each tier.
Json latencies_of(const TierTree& tree) {
  const CostModel cost = gpu_cost();
  Json latencies = Json::object();
  for (size_t g = 0; g < tree.groups.size(); g++) {
    const int at = static_cast<int>(g);
    const std::string& tier = tree.tiers[tree.groups[g].tier].name;
    if (tree.is_leaf(at) || latencies.contains(tier)) continue;
    latencies[tier] = {{"seconds", static_cast<double>(planning_latency_ns(tree, at, cost)) * 1e-9},
                       {"assumed", latency_source(tree, at, cost) != LatencySource::declared}};
  }
  return latencies;
}

Json groups_of_answer(const Problem& problem, const Answer& answer) {
  Json groups = Json::array();
  for (const Dimension& d : answer.dimensions) {
    Json spread = Json::object();
    for (const Spread& s : d.spread)
      spread[problem.tree.tiers[static_cast<size_t>(s.tier)].name] = {{"least", s.least},
                                                                      {"most", s.most}};
    groups.push_back(
        {{"groups", d.name}, {"number", d.groups}, {"members", d.members}, {"spread", spread}});
  }
  return groups;
}

Json calls_of(const Problem& problem, const Answer& answer) {
  Json calls = Json::array();
  for (const Call& call : answer.calls)
    calls.push_back({{"groups", call.traffic.groups},
                     {"collective", call.traffic.collective},
                     {"of", call.traffic.of},
                     {"bytes", call.traffic.bytes},
                     {"times_per_step", call.traffic.times},
                     {"hidden", call.traffic.hidden},
                     {"bound_s", call.bound.seconds},
                     {"binding_tier", tier_name(problem, call.bound)},
                     {"bound_s_by_tier", tiers_of(problem, call.bound)},
                     {"simulated_s", known(call.simulated_s)},
                     {"predicted_s", call.predicted_s}});
  return calls;
}

Json phases_of(const Problem& problem, const Answer& answer) {
  Json phases = Json::array();
  for (const Phase& phase : answer.phases)
    phases.push_back({{"phase", phase.name},
                      {"calls", phase.calls},
                      {"computing_s", phase.seconds},
                      {"bound_s", phase.bound.seconds},
                      {"binding_tier", tier_name(problem, phase.bound)},
                      {"bound_s_by_tier", tiers_of(problem, phase.bound)}});
  return phases;
}

Json curve_of(const Answer& answer) {
  Json curve = Json::array();
  for (const CurvePoint& p : answer.curve) {
    Json fabrics = Json::array();
    for (const CurvePoint::Fabric& f : p.fabrics)
      fabrics.push_back({{"oversubscription", f.oversubscription},
                         {"step_s", f.step.total},
                         {"mfu", f.step.mfu},
                         {"reversed_order_step_s", f.reversed.total},
                         {"days", f.cost.days},
                         {"days_effective", f.cost.days_effective},
                         {"gpu_hours", f.cost.gpu_hours},
                         {"switches", f.parts.switches},
                         {"cables", f.parts.cables}});
    curve.push_back({{"gpus", p.gpus},
                     {"mesh", p.fits ? Json(p.mesh.to_text()) : Json()},
                     {"batch", p.batch},
                     {"tokens_per_step", p.tokens_per_step},
                     {"fits", p.fits},
                     {"memory_bytes", p.memory_bytes},
                     {"fabrics", fabrics}});
  }
  return curve;
}

Json cost_json(const Problem& problem, const Cost& c) {
  const Operation& o = problem.operation;
  return {{"steps", c.steps},
          {"days", c.days},
          {"days_effective", c.days_effective},
          {"effective", c.effective},
          {"mtbf_s", known(c.mtbf_s)},
          {"interruptions", c.interruptions},
          {"restart_s", o.restart_s},
          {"checkpoint_bytes", c.checkpoint_bytes},
          {"checkpoint_s", c.checkpoint_s},
          {"checkpoint_interval_s", known(c.interval_s)},
          {"gpu_hours", c.gpu_hours},
          {"watts_per_gpu", c.watts_per_gpu},
          {"watts_of_the_accelerator_alone", c.chip_only},
          {"pue", o.pue},
          {"kwh", c.kwh},
          {"usd_gpus", known(c.usd_gpus)},
          {"usd_staff", known(c.usd_staff)}};
}

}  // namespace

std::string json_of(const Problem& problem, const Answer& answer) {
  const Job& job = problem.job;
  const double attention = job.model.attention_flops_per_token(job.sequence) * job.tokens;
  Json options = Json::array(), constants = Json::array();
  for (const Option& o : answer.options)
    options.push_back({{"mesh", o.mesh.to_text()},
                       {"placement", o.placement},
                       {"step_s", o.step.total},
                       {"mfu", o.step.mfu}});
  for (const Constant* c : job.constants.all())
    constants.push_back({{"name", c->name}, {"value", c->value}, {"source", c->source}});
  const Json json = {{"model", job.model.name},
                     {"parameters", job.model.parameters()},
                     {"fabric", problem.fabric},
                     {"capacities_known", problem.assumed_tiers.empty()},
                     {"latency_assumed", !problem.assumed_latencies.empty()},
                     {"latency_by_tier", latencies_of(problem.tree)},
                     {"gpu", job.gpu.name},
                     {"gpus", job.mesh.gpus()},
                     {"mesh", job.mesh.to_text()},
                     {"sequence", job.sequence},
                     {"batch", job.batch},
                     {"microbatch", job.microbatch},
                     {"zero", job.zero},
                     {"recompute", name(job.recompute)},
                     {"tokens", job.tokens},
                     {"tokens_per_step", job.tokens_per_step()},
                     {"flops_6np", job.model.parameter_flops_per_token() * job.tokens},
                     {"flops_attention", attention},
                     {"step", step_of(answer.step)},
                     {"memory_bytes", memory_json(answer.memory, job.gpu.memory_bytes.value)},
                     {"groups", groups_of_answer(problem, answer)},
                     {"calls", calls_of(problem, answer)},
                     {"at_once", phases_of(problem, answer)},
                     {"all_calls_bound_s_by_tier", tiers_of(problem, answer.all_calls)},
                     {"orders", options},
                     {"faster_mesh", answer.faster ? Json({{"mesh", answer.faster->mesh.to_text()},
                                                           {"batch", answer.faster->batch},
                                                           {"step_s", answer.faster_step.total},
                                                           {"mfu", answer.faster_step.mfu}})
                                                   : Json()},
                     {"cost", cost_json(problem, answer.cost)},
                     {"curve", curve_of(answer)},
                     {"constants", constants}};
  return json_to_text(json, 2) + "\n";
}

}  // namespace sennit::forecast
