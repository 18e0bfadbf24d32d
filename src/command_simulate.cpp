// `sennit simulate`: the programs that would run, of all ranks, on a fabric, at flow level.
//
//   sennit simulate all_reduce --bytes 1G --fabric meta24k
//   sennit simulate all_gather -b 64M --fabric "racks=2x4;nic=50GB/s;oversubscription=7" --trace trace.json
//
// Load over time takes each message at its mean rate while it moves. The trace is Chrome's JSON: open it in
// Perfetto (ui.perfetto.dev) or chrome://tracing; one process a rank, one thread a peer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "command_plan.hpp"
#include "command_topo.hpp"
#include "commands.hpp"

namespace sennit {
namespace {

using namespace foresee;  // NOLINT: this file is the command itself
using Json = nlohmann::ordered_json;

constexpr size_t kSlices = 60;  // of the time, in load over time

struct Options : Arguments {
  std::string json, trace;
  bool fluid = false, every_rank = false;
  double tolerance = SimulateOptions{}.tolerance;
};

// All messages of the ranks that were simulated.
class Watch {
 public:
  explicit Watch(const TierTree& tree) : tree_(tree) {}
  void operator()(const SimulatedMessage& message) { messages_.push_back(message); }

  // By tier and slice of the time: part of the capacity of all its groups' egress that is in use.
  std::vector<std::vector<double>> load(uint64_t time_ns) const {
    std::vector<std::vector<double>> used(tree_.tiers.size(), std::vector<double>(kSlices, 0.0));
    const double slice_ns = static_cast<double>(std::max<uint64_t>(1, time_ns)) / kSlices;
    for (const SimulatedMessage& m : messages_)
      for (int g = tree_.leaf_of_position[at(m.from)]; !holds(g, m.to); g = tree_.groups[at(g)].parent)
        spread(m, slice_ns, &used[tree_.groups[at(g)].tier]);
    for (size_t t = 0; t < used.size(); t++) {
      double capacity = 0;
      for (const Group& group : tree_.groups)
        if (group.parent >= 0 && group.tier == t) capacity += static_cast<double>(group.egress.bytes_per_s);
      for (double& bytes : used[t]) bytes = capacity > 0 ? bytes / (capacity * slice_ns * 1e-9) : 0;
    }
    return used;
  }

  std::string trace() const {
    std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    std::set<int> named;
    for (const SimulatedMessage& m : messages_) {
      if (named.insert(m.from).second)
        text += fmt::format(
                    R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"position {0}{1}"}}}},)",
                    m.from, m.ranks > 1 ? fmt::format(", for {} ranks", m.ranks) : "") +
                "\n";
      text +=
          fmt::format(
              R"({{"name":"to {0} chunk {1}","cat":"{2}","ph":"X","pid":{3},"tid":{0},"ts":{4:.3f},"dur":{5:.3f},)"
              R"("args":{{"bytes":{6},"arrives_us":{7:.3f}}}}},)",
              m.to, m.chunk, tree_.tiers[m.tier].name, m.from, us(m.begin_ns), us(m.left_ns - m.begin_ns),
              m.bytes, us(m.delivered_ns)) +
          "\n";
    }
    if (!messages_.empty()) text.erase(text.size() - 2, 1);  // the last comma
    return text + "]}\n";
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }
  static double us(uint64_t ns) { return static_cast<double>(ns) / 1e3; }
  bool holds(int group, int position) const {
    const Group& g = tree_.groups[at(group)];
    return position >= g.first && position < g.first + g.size;
  }
  static void spread(const SimulatedMessage& m, double slice_ns, std::vector<double>* slices) {
    const double begin = static_cast<double>(m.begin_ns),
                 end = std::max(begin + 1, static_cast<double>(m.left_ns));
    const double rate = static_cast<double>(m.bytes) * m.ranks / (end - begin);
    for (auto s = static_cast<size_t>(begin / slice_ns); s < slices->size(); s++) {
      const double from = std::max(begin, static_cast<double>(s) * slice_ns);
      const double to = std::min(end, static_cast<double>(s + 1) * slice_ns);
      if (to <= from) break;
      (*slices)[s] += rate * (to - from);
    }
  }

  const TierTree& tree_;
  std::vector<SimulatedMessage> messages_;
};

// ▁ to █, one sign a slice.
std::string sparks(const std::vector<double>& load) {
  const char* const signs[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const double part : load)
    text += signs[static_cast<size_t>(std::clamp(std::lround(part * 8), part > 0.001 ? 1L : 0L, 8L))];
  return text;
}

double busy_part(const TierLoad& tier, uint64_t time_ns) {
  return time_ns == 0 ? 0 : static_cast<double>(tier.busy_ns) / static_cast<double>(time_ns);
}

std::string text_of(const Problem& problem, const Plan& plan, const SimulatedTime& simulated,
                    const std::vector<std::vector<double>>& load, const Options& options, double seconds) {
  const TierTree& tree = problem.tree;
  std::string text =
      fmt::format("{}\nmodel: {}{}\nschedule: {}, {}\n\n", title(problem), model_text(problem.options.cost),
                  options.fluid ? "; fluid: no chunks to fill, nothing to post or to reduce" : "",
                  plan.algorithm, plan.parameters.to_text());
  text += fmt::format("{} {}", simulated.closed_form ? "COMPUTED time" : "SIMULATED time",
                      time_text(simulated.time_ns));
  if (plan.bound.known)
    text += fmt::format(", {:.2f} x the lower bound of {} ({})",
                        static_cast<double>(simulated.time_ns) / static_cast<double>(plan.bound.time_ns),
                        time_text(plan.bound.time_ns), tier_name(tree, plan.bound.binding_tier));
  if (options.fluid)
    text += fmt::format("; {} of it latency, {} rounds", time_text(simulated.latency_ns), simulated.rounds);
  text += fmt::format("\n{} messages; ", simulated.messages);
  if (simulated.closed_form)
    text += "not simulated: the closed form of a ring of more than 1,024 ranks\n\n";
  else
    text += fmt::format("{} of {} ranks simulated, each for all that do the same; took {:.2f} s\n\n",
                        simulated.rank_classes, tree.ranks(), seconds);
  text += fmt::format("{:<10} {:>12} {:>10}{}\n", "tier", "sent out", "busiest",
                      options.fluid ? "" : "  load over time");
  for (size_t t = 0; t + 1 < tree.tiers.size(); t++)
    if (simulated.tiers[t].busiest_group >= 0)
      text += fmt::format(
          "{:<10} {:>12} {:>10}{}\n", tree.tiers[t].name,
          bytes_text(static_cast<double>(simulated.tiers[t].bytes)),
          options.fluid ? "-"
                        : fmt::format("{:.1f}%", 100 * busy_part(simulated.tiers[t], simulated.time_ns)),
          options.fluid ? "" : "  |" + sparks(load[t]) + "|");
  return text;
}

Json json_of(const Problem& problem, const Plan& plan, const SimulatedTime& simulated,
             const std::vector<std::vector<double>>& load, const Options& options) {
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  const TierTree& tree = problem.tree;
  Json tiers = Json::array();
  for (size_t t = 0; t + 1 < tree.tiers.size(); t++) {
    const TierLoad& tier = simulated.tiers[t];
    if (tier.busiest_group < 0) continue;
    tiers.push_back({{"tier", tree.tiers[t].name},
                     {"bytes_out", tier.bytes},
                     {"busiest_group", tree.groups[static_cast<size_t>(tier.busiest_group)].name},
                     {"busiest_us", options.fluid ? Json() : Json(us(tier.busy_ns))},
                     {"load", options.fluid ? Json() : Json(load[t])}});
  }
  return {{"simulated", true},
          {"collective", name(problem.request.collective)},
          {"bytes", problem.bytes},
          {"ranks", tree.ranks()},
          {"fabric", problem.fabric},
          {"capacities_known", !problem.assumed},
          {"fluid", options.fluid},
          {"closed_form", simulated.closed_form},
          {"algorithm", plan.algorithm},
          {"parameters", plan.parameters.to_text()},
          {"time_us", us(simulated.time_ns)},
          {"predicted_us", us(plan.predicted_ns)},
          {"bound_us", plan.bound.known ? Json(us(plan.bound.time_ns)) : Json()},
          {"latency_us", options.fluid ? Json(us(simulated.latency_ns)) : Json()},
          {"rounds", options.fluid ? Json(simulated.rounds) : Json()},
          {"messages", simulated.messages},
          {"ranks_simulated", simulated.rank_classes},
          {"scratch_bytes", simulated.scratch_bytes},
          {"tiers", tiers}};
}

Status run(const Options& options) {
  const Result<Problem> problem = make_problem(options);
  if (!problem) return problem.status();
  const Result<Plan> plan = foresee::make_plan(*problem, options);
  if (!plan) return plan.status();
  const auto began = std::chrono::steady_clock::now();
  Watch watch(problem->tree);
  SimulateOptions how;
  how.cost = problem->options.cost;
  how.fluid = options.fluid;
  how.symmetry = !options.every_rank;
  how.tolerance = options.tolerance;
  if (!options.fluid) how.observe = std::ref(watch);
  const Result<SimulatedTime> simulated = simulate(problem->tree, problem->request, *plan, how);
  if (!simulated) return simulated.status();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  const std::vector<std::vector<double>> load = watch.load(simulated->time_ns);
  if (!options.trace.empty()) SENNIT_RETURN_IF_ERROR(topo::write_text(options.trace, watch.trace()));
  if (!options.json.empty())
    SENNIT_RETURN_IF_ERROR(
        topo::write_text(options.json, json_of(*problem, *plan, *simulated, load, options).dump(2) + "\n"));
  if (options.json != "-" && options.trace != "-")
    fmt::print("{}", text_of(*problem, *plan, *simulated, load, options, seconds.count()));
  return {};
}

}  // namespace

void add_simulate_command(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("simulate", "how long a schedule of all ranks takes on a fabric, at flow level");
  add_arguments(command, options.get());
  command->add_flag(
      "--fluid", options->fluid,
      "without filling of pipelines and posting: the longest chain's latency and the busiest link");
  command->add_flag("--every-rank", options->every_rank,
                    "simulate every rank, not one for all that do the same");
  command
      ->add_option("--tolerance", options->tolerance, "part of a link that may lie idle; 0: exact, and slow")
      ->check(CLI::Range(0.0, 0.5))
      ->capture_default_str();
  command->add_option("--json", options->json, "write it for programs; - is standard output");
  CLI::Option* trace = command->add_option("--trace", options->trace,
                                           "write a Chrome trace, for Perfetto; - is standard output");
  trace->excludes("--fluid");
  command->callback([=] {
    if (const Status status = run(*options); !status.ok()) *exit_code = fail("simulate", status);
  });
}

}  // namespace sennit
