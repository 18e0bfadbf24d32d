// `sennit emulate compare` where nothing can be emulated: sennit's own plan for every point,
// simulated. One round, because a second one would give the same figures.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include <fmt/core.h>

#include "base/options.hpp"
#include "base/text/json.hpp"
#include "collectives/algorithm.hpp"
#include "command/bench/bench.hpp"
#include "command/emulate/compare.hpp"
#include "plan/planner.hpp"
#include "simulate/simulate.hpp"

namespace sennit::emulate {
namespace {

using nlohmann::json;

// What the ranks would know.
TierTree known_to_ranks(TierTree tree, const RunOptions& run) {
  if (run.slurm)
    for (Group& group : tree.groups) group.egress = group.ingress = {};
  return tree;
}

// As a communicator's options set it.
CostModel cost_model() {
  return {.eager_bytes = static_cast<uint64_t>(option_integer("SENNIT_EAGER_BYTES"))};
}

// As a communicator plans.
Result<Plan> plan_for(const Request& request, const TierTree& tree) {
  PlanOptions options;
  options.cost = cost_model();
  options.algorithm = option_text("SENNIT_ALGORITHM");
  options.chunk_bytes = static_cast<uint64_t>(option_integer("SENNIT_CHUNK_BYTES"));
  options.reproducible = option_flag("SENNIT_REPRODUCIBLE");
  const Algorithm* forced = options.algorithm.empty() ? nullptr : find_algorithm(options.algorithm);
  if (forced && !forced->applies(tree, request)) options.algorithm.clear();
  return make_plan(request, tree, options);
}

SimulateOptions simulate_options() {
  SimulateOptions options;
  options.in_flight_bytes = static_cast<uint64_t>(option_integer("SENNIT_IN_FLIGHT_BYTES"));
  options.cost = cost_model();
  options.queues = true;
  return options;
}

std::string model_text(const CostModel& cost) {
  return fmt::format(
      "simulated at flow level: links carry their nominal rates and are shared fairly; {} µs "
      "latency and {} µs of posting per message, reductions at {:g} GB/s; every rank has a core of "
      "its own; deterministic",
      static_cast<double>(cost.latency_ns) / 1e3, static_cast<double>(cost.post_ns) / 1e3,
      static_cast<double>(cost.reduce_bytes_per_s) / 1e9);
}

json null_unless(bool known, const json& value) { return known ? value : json(); }

// A line as `sennit bench --json` writes it.
Result<json> simulate_point(const std::string& collective, const Request& request,
                            const TierTree& tree, const RunOptions& run) {
  const TierTree known = known_to_ranks(tree, run);
  const Result<Plan> plan = plan_for(request, known);
  if (!plan) return plan.status();
  const Algorithm* algorithm = find_algorithm(plan->algorithm);
  SENNIT_CHECK(algorithm != nullptr);
  const std::unique_ptr<Blueprint> blueprint = algorithm->prepare(known, request, plan->parameters);
  const Result<SimulatedTime> simulated =
      simulate(tree, request, *blueprint, plan->parameters.chunks, simulate_options());
  if (!simulated) return simulated.status();

  const Bound bound = lower_bound(request, tree);
  const bool blocks = request.collective != Collective::all_reduce &&
                      request.collective != Collective::broadcast &&
                      request.collective != Collective::reduce;
  const uint64_t bytes =
      request.count * type_bytes(request.type) * (blocks ? static_cast<uint64_t>(tree.ranks()) : 1);
  const double time_us = static_cast<double>(simulated->time_ns) / 1e3;
  const double bound_us = static_cast<double>(bound.time_ns) / 1e3;
  const double algbw = static_cast<double>(bytes) / time_us / 1e3;
  return json{{"simulated", true},
              {"library", kSimulated},
              {"round", 0},
              {"collective", collective},
              {"bytes", bytes},
              {"count", request.count},
              {"dtype", name(request.type)},
              {"op", null_unless(request.reduces(), name(request.op))},
              {"ranks", tree.ranks()},
              {"algorithm", plan->algorithm},
              {"parameters", plan->parameters.to_text()},
              {"time_us", time_us},
              {"algbw_gbytes_per_s", algbw},
              {"busbw_gbytes_per_s", algbw * bus_factor(collective, tree.ranks())},
              {"bound_us", null_unless(bound.known, bound_us)},
              {"of_bound", null_unless(bound.known, bound_us / time_us)},
              {"binding_tier",
               null_unless(bound.known && bound.binding_tier >= 0,
                           tree.tiers[static_cast<size_t>(std::max(0, bound.binding_tier))].name)},
              {"predicted_us", static_cast<double>(plan->predicted_ns) / 1e3},
              {"wrong", json()}};
}

Status check(const CompareOptions& options) {
  bool ours = false;
  for (const std::string& library : options.libraries) ours = ours || library == "sennit";
  if (!ours)
    return {SENNIT_UNSUPPORTED,
            "only sennit's own schedules can be simulated, and --libraries leaves it out"};
  if (options.run.no_fabric)
    return {SENNIT_UNSUPPORTED,
            "--no-fabric cannot be simulated, because what ranks discover by themselves is not "
            "modelled"};
  return check_options();
}

// Those at which `sennit bench` would measure.
std::vector<uint64_t> sizes_of(const SizeRange& range) {
  bench::Options options;
  options.min_bytes = range.first_bytes;
  options.max_bytes = range.last_bytes;
  options.factor = range.factor;
  return bench::sizes(options);
}

std::string peers_text(const CompareOptions& options) {
  std::string peers;
  for (const std::string& library : options.libraries)
    if (library != "sennit") peers += (peers.empty() ? "" : ", ") + library;
  return peers.empty()
             ? ""
             : fmt::format("Left out: {}; only sennit's own schedules can be simulated.\n", peers);
}

}  // namespace

Result<int> compare_simulated(const Tree& tree, const CompareOptions& given,
                              const std::string& why) {
  fmt::print(stderr, "sennit emulate: {}\n", why);
  std::fflush(stderr);
  CompareOptions options = given;
  options.rounds = 1;
  const Result<std::vector<SizeRange>> ranges = parse_ranges(options);
  if (!ranges) return ranges.status();
  SENNIT_RETURN_IF_ERROR(check(options));
  SENNIT_RETURN_IF_ERROR(check_orders(tree, options));

  Comparison comparison;
  comparison.about = about(tree, options);
  comparison.about["simulated"] = true;
  comparison.about["why"] = why;
  comparison.about["model"] = model_text({});
  std::ofstream record;
  if (!options.json.empty()) {
    record.open(options.json);
    record << json_to_text(comparison.about) << '\n' << std::flush;
    if (!record) return invalid(fmt::format("--json {}: cannot write it", options.json));
  }
  fmt::print("SIMULATED, not measured: {}\n{}\n{}\n", describe(tree), model_text({}),
             peers_text(options));
  for (const std::string& order : options.orders) {
    RunOptions run = options.run;
    run.order = order;
    const Result<std::vector<int>> hosts = hosts_of_ranks(tree, run);
    if (!hosts) return hosts.status();
    const Result<TierTree> tiers = tier_tree(tree, *hosts);
    if (!tiers) return tiers.status();
    for (const std::string& collective : options.collectives)
      for (const SizeRange& range : *ranges)
        for (const uint64_t bytes : sizes_of(range)) {
          const Result<Request> request = make_request(collective, bytes, *tiers);
          if (!request) return request.status();
          if (request->count == 0) continue;  // less than an element per rank
          Result<json> line = simulate_point(collective, *request, *tiers, run);
          if (!line) return line.status();
          (*line)["order"] = order;
          if (record.is_open()) record << json_to_text(*line) << '\n';
          comparison.add(*line);
        }
  }
  fmt::print("{}", comparison.table());
  return finish_record(&record, options) ? 0 : kUnwritten;
}

}  // namespace sennit::emulate
