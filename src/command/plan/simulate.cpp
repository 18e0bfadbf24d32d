// `sennit simulate`: the programs that would run, of all ranks, on a fabric, at flow level.
//
//   sennit simulate all_reduce --bytes 1G --fabric meta24k
//   sennit simulate all_gather --fabric "racks=2x4;nic=50GB/s;oversubscription=7" --trace t.json
//   sennit simulate all_gather -b 1G --fabric meta24k --ranks-per-host 1 --groups 128 --stride 16
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "command/commands.hpp"
#include "command/plan/simulate.hpp"
#include "command/write.hpp"
#include "plan/planner.hpp"

namespace sennit {
namespace {

using namespace plan;  // NOLINT: this file is the command itself
using Json = nlohmann::ordered_json;

constexpr int kMostForLinks = 4096;  // ranks

std::string_view stand_for(const SimulatedTime& simulated, int ranks) {
  if (simulated.rank_classes == static_cast<uint32_t>(ranks)) return "";
  return simulated.by_kind ? ", each for all that do nearly the same"
                           : ", each for all that do the same";
}

std::string text_of(const Problem& problem, const Plan& plan, const SimulatedTime& simulated,
                    const std::vector<std::vector<double>>& load, const SimulateArguments& options,
                    double seconds) {
  const TierTree& tree = problem.tree;
  std::string text =
      fmt::format("{}\nmodel: {}{}\nschedule: {}, {}\n\n", title(problem), model_text(problem),
                  options.fluid ? "; fluid: no chunks to fill, nothing to post or to reduce" : "",
                  plan.algorithm, plan.parameters.to_text());
  text += fmt::format("{} {}", simulated.closed_form ? "COMPUTED time" : "SIMULATED time",
                      time_text(simulated.time_ns));
  if (problem.assumed())
    text +=
        fmt::format(", ASSUMED rates at {}, of which the fabric says none", problem.assumed_tiers);
  if (plan.bound.known)
    text += fmt::format(
        ", {:.2f} x the lower bound of {} ({})",
        static_cast<double>(simulated.time_ns) / static_cast<double>(plan.bound.time_ns),
        time_text(plan.bound.time_ns), tier_name(tree, plan.bound.binding_tier));
  if (options.fluid)
    text += fmt::format("; {} of it latency, {} rounds", time_text(simulated.latency_ns),
                        simulated.rounds);
  text += fmt::format("\n{} messages; ", simulated.messages);
  if (simulated.closed_form)
    text += "not simulated: the closed form of a ring of more than 1,024 ranks\n\n";
  else
    text += fmt::format("{} of {} ranks simulated{}; took {:.2f} s\n\n", simulated.rank_classes,
                        tree.ranks(), stand_for(simulated, tree.ranks()), seconds);
  return text + tiers_text(tree, simulated, load, options.fluid);
}

Json json_of(const Problem& problem, const Plan& plan, const SimulatedTime& simulated,
             const std::vector<std::vector<double>>& load, const SimulateArguments& options) {
  const TierTree& tree = problem.tree;
  return {{"simulated", true},
          {"collective", name(problem.request.collective)},
          {"datatype", name(problem.request.type)},
          {"op", problem.request.reduces() ? Json(name(problem.request.op)) : Json()},
          {"bytes", problem.bytes},
          {"ranks", tree.ranks()},
          {"fabric", problem.fabric},
          {"capacities_known", !problem.assumed()},
          {"fluid", options.fluid},
          {"closed_form", simulated.closed_form},
          {"algorithm", plan.algorithm},
          {"parameters", plan.parameters.to_text()},
          {"time_us", us(simulated.time_ns)},
          {"predicted_us", us(plan.predicted_ns)},
          {"bound_us", plan.bound.known ? Json(us(plan.bound.time_ns)) : Json()},
          {"binding_tier", plan.bound.known && plan.bound.binding_tier >= 0
                               ? Json(tier_name(tree, plan.bound.binding_tier))
                               : Json()},
          {"bound_why", plan.bound.why},
          {"latency_us", options.fluid ? Json(us(simulated.latency_ns)) : Json()},
          {"rounds", options.fluid ? Json(simulated.rounds) : Json()},
          {"messages", simulated.messages},
          {"ranks_simulated", simulated.rank_classes},
          {"by_kind", simulated.by_kind},
          {"scratch_bytes", simulated.scratch_bytes},
          {"tiers", tiers_json(tree, simulated, load, options.fluid)}};
}

bool same(const TierTree& a, const TierTree& b) { return a.fingerprint() == b.fingerprint(); }

// Its schedule is the one that was planned for the problem's own tree.
Result<SimulatedTime> run_on(const TierTree& actual, const Problem& problem, const Plan& plan,
                             const SimulateOptions& how) {
  if (same(actual, problem.tree)) return simulate(problem.tree, problem.request, plan, how);
  const std::unique_ptr<Blueprint> schedule =
      find_algorithm(plan.algorithm)->prepare(problem.tree, problem.request, plan.parameters);
  return simulate(actual, problem.request, *schedule, plan.parameters.chunks, how);
}

// Where the time comes from a formula there are no messages to tell of.
Status check_use_of_formula(const SimulateArguments& options) {
  const std::pair<const char*, bool> of_messages[] = {{"--cable-hash", options.cable_hash != 0},
                                                      {"--links", options.links > 0},
                                                      {"--trace", !options.trace.empty()},
                                                      {"--every-rank", options.every_rank}};
  for (const auto& [option, given] : of_messages)
    if (given)
      return invalid(
          fmt::format("{}: the time of a ring of more than {} ranks is computed, and no message of "
                      "it simulated: leave it out, or use --ranks or another --algorithm",
                      option, kLongRing));
  return {};
}

Status run(const SimulateArguments& options) {
  const Result<Problem> problem = make_problem(options);
  if (!problem) return problem.status();
  Result<Plan> plan = plan::make_plan(*problem, options);
  if (!plan) return plan.status();
  SENNIT_RETURN_IF_ERROR(check_use(options, problem->tree));
  const auto began = std::chrono::steady_clock::now();
  Watch watch(problem->tree, problem->options.cost);
  SimulateOptions how = simulate_options(*problem, options);
  if (!options.fluid) how.observe = std::ref(watch);
  if (options.links > 0) how.symmetry = false;
  const Result<std::vector<SlowBoundary>> slow = parse_slow(options.slow, problem->tree);
  if (!slow) return slow.status();
  const TierTree actual = slowed(problem->tree, *slow);
  if (same(actual, problem->tree) && has_closed_form(actual, problem->request, *plan))
    SENNIT_RETURN_IF_ERROR(check_use_of_formula(options));
  std::optional<PlannedAnew> anew;
  if (!slow->empty()) {
    Result<PlannedAnew> planned =
        plan_anew(problem->tree, actual, problem->request, *plan, problem->options);
    if (!planned) return planned.status();
    anew = *std::move(planned);
    plan->bound = anew->plan.bound;  // of the fabric as it is
  }
  std::optional<diagnose::Verdict> verdict;
  if (options.diagnose) {
    Result<diagnose::Verdict> found = diagnosis_of(*problem, *plan, *slow, options.cable_hash);
    if (!found) return found.status();
    verdict = *std::move(found);
  }
  const Result<SimulatedTime> simulated = run_on(actual, *problem, *plan, how);
  Progress::wipe();
  if (!simulated) return simulated.status();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  const std::vector<std::vector<double>> load = watch.load(simulated->time_ns);
  if (!options.trace.empty()) SENNIT_RETURN_IF_ERROR(write_text(options.trace, watch.trace()));
  const std::vector<Watch::LinkLoad> links =
      watch.busiest(simulated->time_ns, static_cast<size_t>(options.links));
  if (!options.json.empty()) {
    Json json = json_of(*problem, *plan, *simulated, load, options);
    if (options.links > 0) json["links"] = links_json(problem->tree, links);
    if (anew) json["planned_anew"] = anew_json(*anew);
    if (verdict) json["diagnosis"] = diagnosis_json(*verdict);
    SENNIT_RETURN_IF_ERROR(write_text(options.json, json_to_text(json, 2) + "\n"));
  }
  if (options.json != "-" && options.trace != "-")
    fmt::print("{}{}{}{}", text_of(*problem, *plan, *simulated, load, options, seconds.count()),
               anew ? anew_text(*anew, problem->tree) : "", verdict ? diagnosis_text(*verdict) : "",
               options.links > 0 ? links_text(problem->tree, links) : "");
  return {};
}

// What is slow, or shared out, unknown to the planner.
void add_slow_options(const Command& command, SimulateArguments* options, const Argument& fluid,
                      const Argument& groups) {
  command
      .option("--slow", options->slow,
              "a link that carries only so much of its capacity, unknown to the planner: h3=0.5, "
              "rack1/out=0.25; again for others")
      .excludes(groups);
  command
      .flag("--diagnose", options->diagnose,
            "also what sennit diagnose would say of a job that makes such calls")
      .excludes(fluid)
      .excludes(groups);
  command
      .option(
          "--cable-hash", options->cable_hash,
          "messages between two ranks take one of a link's cables, by a hash with this seed, as "
          "ECMP has it; without, all cables carry all")
      .within(1, INT64_MAX)
      .excludes(fluid)
      .excludes(groups);
}

}  // namespace

Status plan::check_use(const SimulateArguments& options, const TierTree& tree) {
  SENNIT_RETURN_IF_ERROR(check_outputs({{"--json", options.json}, {"--trace", options.trace}}));
  if (!std::isfinite(options.tolerance))
    return invalid("--tolerance: expected a part of 1, as in 0.005");
  const bool cables = std::any_of(tree.groups.begin(), tree.groups.end(),
                                  [](const Group& group) { return group.cables > 1; });
  if (options.cable_hash != 0 && !cables)
    return invalid(
        "--cable-hash: no link of this fabric has several cables (cables N in its file, "
        "cables=N in racks=...)");
  if (options.links > 0 && tree.ranks() > kMostForLinks)
    return invalid(
        fmt::format("--links: {} ranks, and every one is simulated for it; at most {}: use --ranks",
                    tree.ranks(), kMostForLinks));
  return {};
}

void add_simulate_command(CommandLine& line) {
  const auto options = std::make_shared<SimulateArguments>();
  const Command command =
      line.command("simulate", "how long a schedule of all ranks takes on a fabric, at flow level");
  add_arguments(command, options.get());
  const Argument fluid = command.flag(
      "--fluid", options->fluid,
      "without filling of pipelines and posting: the longest chain's latency and the busiest link");
  command.flag("--every-rank", options->every_rank,
               "simulate every rank, not one for all that do the same, or nearly the same");
  command
      .option("--tolerance", options->tolerance,
              "part of a link that may lie idle; 0: exact, and slow")
      .share_within(0.0, 0.5)
      .show_default();
  command.option("--json", options->json, "write it for programs; - is standard output");
  const Argument groups = command
                              .option("--groups", options->groups,
                                      "many process groups of so many ranks each do it at the same "
                                      "time and share the links")
                              .within(2, 1 << 24);
  command
      .option("--stride", options->stride,
              "--groups: the members of a group are so many ranks apart, as in a mesh (default 1)")
      .within(1, 1 << 24);
  command
      .option(
          "--links", options->links,
          "also the load over time of so many links, those that are used most (at most 4096 ranks)")
      .within(1, 1 << 20)
      .excludes(fluid)
      .excludes(groups);
  add_slow_options(command, options.get(), fluid, groups);
  const Argument trace = command.option("--trace", options->trace,
                                        "write a Chrome trace, for Perfetto; - is standard output");
  trace.excludes(fluid);
  command.action([=] {
    const Status status =
        options->groups > 0 || options->stride > 0 ? simulate_groups(*options) : run(*options);
    return status.ok() ? 0 : fail("simulate", status);
  });
}

}  // namespace sennit
