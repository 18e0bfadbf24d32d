// dry_run.cpp: see trainer/command/dry_run.hpp.
#include "trainer/command/dry_run.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "base/process/memory_left.hpp"
#include "command/topo/read/read.hpp"
#include "topology/fabric/units.hpp"
#include "trainer/base/local_ranks.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/device/cpu/matrix_peak.hpp"
#include "trainer/run/memory.hpp"
#include "trainer/run/plan.hpp"
#include "trainer/run/run.hpp"

namespace sennit::trainer {
namespace {

// bytes/s between ranks of a host, assumed where nothing says it
constexpr double kWithinHost = 5e9;

// "1 host", "2 micro-batches".
std::string counted(int64_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

int hosts_of(const std::vector<Placement>& places) {
  std::vector<std::string> names;
  names.reserve(places.size());
  for (const Placement& place : places) names.push_back(place.host);
  std::sort(names.begin(), names.end());
  return static_cast<int>(std::unique(names.begin(), names.end()) - names.begin());
}

// Bytes that leave and enter the busiest group of each tier in a step, and the least time that
// takes.
void print_tiers(const std::vector<forecast::Traffic>& calls, const forecast::MeshLayout& layout,
                 const forecast::GpuFabric& network) {
  const TierTree& tree = network.tree();
  std::vector<double> load(tree.groups.size(), 0), seconds(tree.tiers.size(), 0);
  for (const forecast::Traffic& call : calls) {
    const forecast::Load& of_one = layout.of[static_cast<size_t>(call.axis)].load;
    const bool both = call.collective == "all_reduce";
    for (size_t g = 1; g < load.size(); g++)
      load[g] += call.bytes * call.times *
                 (both ? of_one.in[g] + of_one.out[g] : std::max(of_one.in[g], of_one.out[g]));
    const forecast::SetBound bound = least_time(call, layout);
    for (size_t t = 0; t < seconds.size(); t++) seconds[t] += bound.tier_seconds[t] * call.times;
  }
  for (size_t t = 0; t < tree.tiers.size(); t++) {
    double busiest = 0;
    for (size_t g = 1; g < load.size(); g++)
      if (tree.groups[g].tier == t) busiest = std::max(busiest, load[g]);
    if (busiest > 0)
      fmt::print("  {:<6} {} a step through the busiest, at least {:.1f} ms\n", tree.tiers[t].name,
                 bytes_text(static_cast<uint64_t>(busiest)), seconds[t] * 1e3);
  }
}

// The dry run's ranks on the fabric asked for, or on this host's.
struct Ground {
  TierTree tree;
  std::vector<Placement> places;
  int per_host = 1;
};
Result<Ground> ground_of(const DryRun& asked, int ranks) {
  const Result<topo::Reading> reading =
      asked.fabric.empty() ? topo::read_here() : topo::read_one(asked.fabric);
  if (!reading) return reading.status();
  Ground ground;
  const int hosts = std::max(1, hosts_of(ranks_on_all_hosts(reading->fabric, 1)));
  ground.per_host = (ranks + hosts - 1) / hosts;
  ground.places = ranks_on_all_hosts(reading->fabric, ground.per_host);
  if (static_cast<int>(ground.places.size()) < ranks)
    return invalid(
        fmt::format("{} ranks: the fabric has room for {}", ranks, ground.places.size()));
  ground.places.resize(static_cast<size_t>(ranks));
  Result<TierTree> tree = contract(reading->fabric, ground.places);
  if (!tree) return tree.status();
  ground.tree = *std::move(tree);
  return ground;
}

void print_job(const TrainConfig& config, const TrainerOptions& options, const Ground& ground) {
  const LlamaConfig& model = options.model;
  fmt::print("model    {:.1f}M parameters, {:.3g} operations a token\n",
             static_cast<double>(model.parameters()) / 1e6, model.flops_per_token(config.sequence));
  fmt::print("mesh     {} on {}, zero {}; {} of {} a step, {} of {}\n", options.mesh.text(),
             counted(hosts_of(ground.places), "host"), options.zero,
             counted(config.batch, "sequence"), counted(config.sequence, "token"),
             counted(options.batch.micro_batches(options.mesh), "micro-batch"), config.micro_batch);
}

void print_step(const TrainConfig& config, const TrainerOptions& options, int per_host,
                const forecast::MeshLayout& layout) {
  const int cores = cores_of_this_host();
  const int threads =
      config.threads > 0 ? static_cast<int>(config.threads) : std::max(1, cores / per_host);
  const double peak = rank_peak(measure_matrix_peak(options.type, threads), per_host, cores, false);
  const StepPlan plan = plan_step(options, layout, peak);
  const double tokens = static_cast<double>(config.batch * config.sequence);
  fmt::print(
      "step     {:.1f} ms, {:.0f} tokens/s: computing {:.1f} (at {:.0f}% of this machine's {:.3g} "
      "FLOP/s a rank), bubble {:.1f}, communication waited for {:.1f}, hidden {:.1f}\n",
      plan.total_s() * 1e3, tokens / plan.total_s(), plan.compute_s * 1e3, 100 * kEfficiency, peak,
      plan.bubble_s * 1e3, plan.waited_s * 1e3, plan.hidden_s * 1e3);
}

}  // namespace

Status dry_run(const TrainConfig& config, const DryRun& asked) {
  const Result<std::shared_ptr<const Dataset>> data = Dataset::open(config.data);
  if (!data) return data.status();
  const Result<LlamaConfig> model = model_of(config, (*data)->vocabulary());
  if (!model) return model.status();
  const int ranks = asked.ranks > 0
                        ? asked.ranks
                        : config.mesh(static_cast<int>(config.tp * config.pp * config.cp)).ranks();
  const TrainerOptions options = trainer_options(config, *model, ranks);
  SENNIT_RETURN_IF_ERROR(check_mesh(options.mesh, options.batch, *model, ranks));
  if ((*data)->samples(Split::training, config.sequence) == 0)
    return invalid(
        fmt::format("{} has not one sequence of {} tokens", config.data, config.sequence));
  const Result<Ground> ground = ground_of(asked, ranks);
  if (!ground) return ground.status();

  print_job(config, options, *ground);
  const MemoryParts memory = memory_of(options);
  const bool memory_known = asked.memory_per_rank > 0 || asked.fabric.empty();
  fmt::print("memory   {} a rank: {}{}\n", bytes_text(memory.total()), memory.text(),
             memory_known ? "" : "; --memory-per-rank says what a rank of that fabric has");
  const std::vector<forecast::Traffic> calls = planned_traffic(options);
  fmt::print("traffic  {}\n", calls.empty() ? "none" : "of a rank and step:");
  for (const forecast::Traffic& call : calls)
    fmt::print("  {:<8}{:<15}{:<18}{} x {:.0f}{}\n", call.groups, call.collective, call.of,
               bytes_text(static_cast<uint64_t>(call.bytes)), call.times,
               call.hidden && options.overlap ? ", beside computing" : "");
  const forecast::GpuFabric network(ground->tree, kWithinHost);
  std::vector<int> positions(static_cast<size_t>(ranks));
  std::iota(positions.begin(), positions.end(), 0);
  const forecast::MeshLayout layout = lay_out(planner_mesh(options.mesh), network, positions);
  print_tiers(calls, layout, network);
  if (const std::string unknown = forecast::unknown_tiers(ground->tree); !unknown.empty())
    fmt::print("  nothing says what these carry, so they are not counted: {}\n", unknown);
  print_step(config, options, ground->per_host, layout);
  if (!memory_known) return {};
  const auto per_host = static_cast<uint64_t>(ground->per_host);
  return check_memory(
      options, asked.memory_per_rank > 0 ? asked.memory_per_rank : memory_left().bytes / per_host);
}

}  // namespace sennit::trainer
