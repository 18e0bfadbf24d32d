// From the command line of `sennit job` to a training job on a tier tree, and from there to all
// that is said of it.
#include <algorithm>
#include <charconv>

#include <fmt/core.h>

#include "base/index.hpp"
#include "command/forecast/job.hpp"
#include "command/topo/read/read.hpp"
#include "forecast/search.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::forecast {
namespace {

constexpr double kLeastShare = 1e-4;           // of a peak, that is worth reckoning with
constexpr double kTokensPerStep = 16'777'216;  // Llama 3's 16 M
constexpr double kMostCount = 1e18;            // of tokens, people, dollars
constexpr int64_t kMostFabricGpus = 1 << 20;

// "15.6T", "400000": powers of ten. Nothing where it is neither.
std::optional<double> parse_count(const std::string& text) {
  double value = 0;
  const char* const stop = text.data() + text.size();
  const auto [end, failed] = std::from_chars(text.data(), stop, value);
  const std::string_view unit(end, static_cast<size_t>(stop - end));
  const double factor = unit.empty()                 ? 1
                        : unit == "K"                ? 1e3
                        : unit == "M"                ? 1e6
                        : unit == "B" || unit == "G" ? 1e9
                        : unit == "T"                ? 1e12
                                                     : 0;
  value *= factor;
  if (failed != std::errc() || !(value > 0 && value <= kMostCount)) return std::nullopt;
  return value;
}

Result<double> parse_seconds(const char* option, const std::string& text) {
  const std::optional<uint64_t> ns = parse_time(text);
  if (!ns) return invalid(fmt::format("{} {}: expected a time such as 600s", option, text));
  return static_cast<double>(*ns) * 1e-9;
}

Status in_range(const char* option, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return invalid(fmt::format("{} {}: expected {} to {}", option, value, least, most));
}

Result<Operation> make_operation(const Arguments& a, int gpus) {
  Operation operation;
  SENNIT_RETURN_IF_ERROR(in_range("--gpu-hour-usd", a.usd_per_gpu_hour, 0, 1e6));
  SENNIT_RETURN_IF_ERROR(in_range("--power", a.watts, 0, 1e6));
  SENNIT_RETURN_IF_ERROR(in_range("--pue", a.pue, 1, 10));
  SENNIT_RETURN_IF_ERROR(in_range("--mtbf", a.mtbf_hours, 0, 1e9));
  operation.usd_per_gpu_hour = a.usd_per_gpu_hour;
  operation.watts_per_gpu = a.watts;
  operation.pue = a.pue;
  if (a.mtbf_hours > 0) operation.interruptions_per_gpu_hour = 1 / (a.mtbf_hours * gpus);
  const Result<double> restart = parse_seconds("--restart", a.restart);
  if (!restart) return restart.status();
  operation.restart_s = *restart;
  if (!a.interval.empty()) {
    const Result<double> interval = parse_seconds("--checkpoint-interval", a.interval);
    if (!interval) return interval.status();
    SENNIT_RETURN_IF_ERROR(in_range("--checkpoint-interval", *interval, 1, 1e9));
    operation.interval_s = *interval;
  }
  const std::optional<uint64_t> storage = parse_rate(a.storage);
  if (!storage || *storage == 0)
    return invalid(fmt::format("--storage {}: expected a rate such as 2TB/s", a.storage));
  operation.storage_bytes_per_s = static_cast<double>(*storage);
  if (!a.staff.empty()) {
    const size_t colon = std::min(a.staff.find(':'), a.staff.size());
    const std::optional<double> people = parse_count(a.staff.substr(0, colon));
    const std::optional<double> usd =
        parse_count(a.staff.substr(std::min(colon + 1, a.staff.size())));
    if (!people || !usd || *people > 1e9 || *usd > 1e9)
      return invalid(fmt::format(
          "--staff {}: expected PEOPLE:USD a year, each above 0 and at most 1B, such as 100:400K",
          a.staff));
    operation.people = *people;
    operation.usd_per_person_year = *usd;
  }
  return operation;
}

// Fills in what is unknown between hosts: a NIC for each GPU, and a quarter of what is below.
// Within a host it stays unknown: the accelerator's own links count there, at each GPU's boundary
// (limit_to_links), and they cross NUMA nodes.
void assume_capacities(TierTree* tree, const Accelerator& gpu) {
  const GpuFabric network(*tree, gpu.scale_up_bytes_per_s.value);
  const auto nic =
      static_cast<uint64_t>(gpu.nic_bytes_per_s.known() ? gpu.nic_bytes_per_s.value : 50e9);
  for (size_t g = tree->groups.size(); g-- > 1;) {  // children before parents
    if (network.within_host(static_cast<int>(g))) continue;
    Group& group = tree->groups[g];
    const std::string& tier = tree->tiers[group.tier].name;
    for (Capacity Group::*side : {&Group::egress, &Group::ingress}) {
      if ((group.*side).known()) continue;
      uint64_t below = 0;
      for (int c = 0; c < group.children; c++)
        below += (tree->groups[index(group.first_child + c)].*side).bytes_per_s;
      const bool host = tier == "host" || tier == "numa" || group.children == 0;
      (group.*side) = {host ? nic * static_cast<uint64_t>(group.size) : below / 4,
                       Provenance::assumed};
    }
  }
}

// A GPU's boundary within its host is its links': where the fabric says more, it counts the NIC in.
void limit_to_links(TierTree* tree, const Accelerator& gpu) {
  const auto links = static_cast<uint64_t>(gpu.scale_up_bytes_per_s.value);
  const GpuFabric network(*tree, gpu.scale_up_bytes_per_s.value);
  for (size_t g = 1; links > 0 && g < tree->groups.size(); g++) {
    Group& group = tree->groups[g];
    if (group.children > 0 || !network.within_host(static_cast<int>(g))) continue;
    for (Capacity Group::*side : {&Group::egress, &Group::ingress})
      if (!(group.*side).known() || (group.*side).bytes_per_s > links)
        group.*side = {links, Provenance::declared};
  }
}

// "matmul=0.6,network=0.9"
Status set_constants(const std::string& text, Constants* constants) {
  for (size_t from = 0; !text.empty() && from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const std::string item = text.substr(from, comma - from);
    from = comma + 1;
    const size_t equals = std::min(item.find('='), item.size());
    std::string known;
    Constant* constant = nullptr;
    for (Constant* c : constants->all()) {
      if (item.substr(0, equals) == c->name) constant = c;
      known += (known.empty() ? "" : ", ") + std::string(c->name);
    }
    double value = 0;
    const char* const stop = item.data() + item.size();
    const char* const begin = item.data() + std::min(equals + 1, item.size());
    const auto [end, failed] = std::from_chars(begin, stop, value);
    if (!constant || failed != std::errc() || end != stop || !(value >= kLeastShare && value <= 1))
      return invalid(fmt::format(
          "--constants {}: expected one of {} and a share from {} to 1, such as matmul=0.6", item,
          known, kLeastShare));
    constant->value = value;
    constant->source = "--constants";
  }
  return {};
}

Result<Job> make_job(const Arguments& a) {
  Job job;
  if (a.model.empty())
    return invalid(
        "no model: name one of llama3-405b, llama3-70b, llama3-8b, or a file with its numbers");
  const Result<Model> model = find_model(a.model);
  if (!model) return model.status();
  job.model = *model;
  const Result<Accelerator> gpu = find_accelerator(a.gpu);
  if (!gpu) return Status(gpu.status().kind(), "--gpu: " + gpu.status().text());
  job.gpu = *gpu;
  SENNIT_RETURN_IF_ERROR(in_range("--sequence", a.sequence, 1, 1 << 27));
  SENNIT_RETURN_IF_ERROR(in_range("--batch", a.batch, 0, kMostBatch));
  SENNIT_RETURN_IF_ERROR(in_range("--microbatch", a.microbatch, 1, 1 << 20));
  SENNIT_RETURN_IF_ERROR(in_range("--zero", a.zero, 0, 3));
  SENNIT_RETURN_IF_ERROR(in_range("--interleave", a.interleave, 0, 1 << 20));
  SENNIT_RETURN_IF_ERROR(in_range("--switch-ports", a.switch_ports, 4, 1 << 20));
  job.sequence = a.sequence;
  job.batch = a.batch;
  job.microbatch = a.microbatch;
  job.zero = a.zero;
  job.interleave = a.interleave;
  SENNIT_RETURN_IF_ERROR(set_constants(a.constants, &job.constants));
  const std::optional<double> tokens = parse_count(a.tokens);
  if (!tokens)
    return invalid(
        fmt::format("--tokens {}: expected a number above 0, at most 1e18, such as 15.6T; K, M, B, "
                    "T are powers of ten",
                    a.tokens));
  job.tokens = *tokens;
  for (const Recompute recompute : {Recompute::none, Recompute::cheap, Recompute::full})
    if (a.recompute == name(recompute)) {
      job.recompute = recompute;
      return job;
    }
  return invalid(fmt::format("--recompute {}: expected none, cheap or full", a.recompute));
}

// What share of a call's times falls into the forward pass.
double forward_share(const Traffic& call) {
  if (call.axis == Axis::data) {
    if (call.collective != "all_gather") return 0;
    return call.times > 1 ? 0.5 : 1;  // sharded weights are gathered for the backward pass as well
  }
  if (call.axis == Axis::pipeline) return call.of == "activations" ? 1 : 0;
  if (call.of == "activations, again" || call.of == "their gradients") return 0;
  return 0.5;
}

void add_load(const Traffic& call, const Load& load, double times, Load* sum) {
  const bool backwards = call.collective == "reduce_scatter",
             both = call.collective == "all_reduce";
  for (size_t g = 0; g < sum->in.size(); g++) {
    const double in = load.in[g], out = load.out[g];
    sum->in[g] += (both ? in + out : backwards ? out : in) * call.bytes * times;
    sum->out[g] += (both ? in + out : backwards ? in : out) * call.bytes * times;
  }
}

// Weights arrive beside the first microbatches' forward passes, gradients leave beside the last
// ones' backward passes; the other groups go on meanwhile.
std::vector<Phase> phases_of(const Job& job, const MeshLayout& layout, const StepTime& step) {
  const int m = job.microbatches(), some = std::min(m, job.mesh.size(Axis::pipeline));
  const StepTime& s = step;
  const double work = (s.matmul + s.attention + s.elementwise + s.tensor + s.context) * some / m;
  std::vector<Phase> phases;
  for (const bool forward : {true, false}) {
    Phase phase;
    phase.name = fmt::format("{} {} microbatch{}, {}", forward ? "first" : "last", some,
                             some > 1 ? "es" : "", forward ? "forward" : "backward");
    phase.seconds = work * (forward ? 1 : 2) / 3;
    Load sum{std::vector<double>(layout.network->tree().groups.size(), 0),
             std::vector<double>(layout.network->tree().groups.size(), 0)};
    std::vector<std::pair<std::string, double>> kinds;
    for (const Traffic& call : traffic(job)) {
      const double share = forward ? forward_share(call) : 1 - forward_share(call);
      const double times =
          call.times * share * (call.times > 1 ? static_cast<double>(some) / m : 1);
      if (times <= 0) continue;
      add_load(call, layout.of[static_cast<size_t>(call.axis)].load, times, &sum);
      const std::string kind = call.groups + " " + call.collective;
      const auto known =
          std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == kind; });
      if (known == kinds.end())
        kinds.emplace_back(kind, times);
      else
        known->second += times;
    }
    for (const auto& [kind, times] : kinds)
      phase.calls += fmt::format("{}{:.0f} {}", phase.calls.empty() ? "" : ", ", times, kind);
    phase.bound = layout.network->bound(sum, 1, 1);
    phases.push_back(std::move(phase));
  }
  return phases;
}

// The fabric asked for, or what this host's sources say, with a rank for each GPU.
Status find_fabric(const Arguments& arguments, Problem* problem) {
  Result<topo::Reading> reading =
      arguments.fabric.empty() ? topo::read_here() : topo::read_one(arguments.fabric);
  if (!reading) return reading.status();
  const int64_t hosts =
      std::ranges::count(reading->fabric.vertices, VertexKind::host, &Vertex::kind);
  if (hosts * arguments.gpus_per_host > kMostFabricGpus)
    return invalid(fmt::format("--gpus-per-host {}: on {} hosts that is {} GPUs, of at most {}",
                               arguments.gpus_per_host, hosts, hosts * arguments.gpus_per_host,
                               kMostFabricGpus));
  const std::vector<Placement> ranks = ranks_on_all_hosts(reading->fabric, arguments.gpus_per_host);
  if (ranks.empty()) return invalid("the fabric has no hosts: name another with --fabric");
  Result<TierTree> tree = contract(reading->fabric, ranks);
  if (!tree) return tree.status();
  problem->tree = *std::move(tree);
  problem->assumed_latencies = assumed_latencies(problem->tree);
  problem->fabric = reading->fabric.name.empty() ? "this host" : reading->fabric.name;
  return {};
}

// How many GPUs the job has: what --gpus says, else the mesh, else all.
Result<int> count_gpus(const Arguments& arguments, const Problem& problem) {
  const int mesh_gpus = arguments.mesh.empty() ? 0 : problem.job.mesh.gpus();
  const int gpus = arguments.gpus != 0 ? arguments.gpus
                   : mesh_gpus > 0     ? mesh_gpus
                                       : problem.tree.ranks();
  if (mesh_gpus > 0 && mesh_gpus != gpus) {
    const int others = mesh_gpus / problem.job.mesh.size(Axis::data);
    return invalid(fmt::format(
        "--mesh {} multiplies to {} GPUs, not to the {} of --gpus{}", arguments.mesh, mesh_gpus,
        gpus, gpus % others == 0 ? fmt::format("; with dp{} it would", gpus / others) : ""));
  }
  if (gpus < 1 || gpus > problem.tree.ranks())
    return invalid(
        fmt::format("{} GPUs: the fabric {} has {}", gpus, problem.fabric, problem.tree.ranks()));
  return gpus;
}

// Every capacity is known, or --assume says what stands in for it.
Status settle_capacities(const Arguments& arguments, Problem* problem) {
  const Figure& nic = problem->job.gpu.nic_bytes_per_s;
  problem->assumed_tiers = unknown_tiers(problem->tree);
  if (!problem->assumed_tiers.empty()) {
    if (!arguments.assume)
      return invalid(fmt::format(
          "the fabric {} does not say the capacity of: {}. Say it in the fabric's file (sennit "
          "topo shows what is known), or go on with --assume, which takes {} for each GPU's NIC "
          "and 4:1 above the hosts",
          problem->fabric, problem->assumed_tiers,
          nic.known() ? format_rate(static_cast<uint64_t>(nic.value)) : "50GB/s"));
    assume_capacities(&problem->tree, problem->job.gpu);
  }
  limit_to_links(&problem->tree, problem->job.gpu);
  return {};
}

// Where the caller gave none: the fastest mesh that fits, and a batch of kTokensPerStep.
Status settle_mesh_and_batch(const Arguments& arguments, int gpus, Problem* problem) {
  Job& job = problem->job;
  if (arguments.mesh.empty()) {
    const GpuFabric network(problem->tree, job.gpu.scale_up_bytes_per_s.value);
    const Result<Job> fastest = fastest_job(job, network, gpus,
                                            {kTokensPerStep / job.sequence, arguments.batch, 0,
                                             shape_of(problem->tree).ranks_per_host});
    if (!fastest) return fastest.status();
    job = *fastest;
    problem->mesh_chosen = true;
  } else if (arguments.batch == 0) {
    job.share_out(kTokensPerStep / job.sequence);
  }
  return {};
}

}  // namespace

Result<Problem> make_problem(const Arguments& arguments) {
  Result<Job> job = make_job(arguments);
  if (!job) return job.status();
  Problem problem;
  problem.job = *std::move(job);
  problem.switch_ports = arguments.switch_ports;
  if (!arguments.mesh.empty()) {
    const Result<Mesh> mesh = parse_mesh(arguments.mesh);
    if (!mesh) return mesh.status();
    problem.job.mesh = *mesh;
  }
  if (arguments.mesh.empty() && arguments.interleave > 0)
    return invalid(
        fmt::format("--interleave {}: the search for a mesh takes one layer a chunk: give the mesh "
                    "with --mesh, or leave it out",
                    arguments.interleave));
  SENNIT_RETURN_IF_ERROR(in_range("--gpus-per-host", arguments.gpus_per_host, 0, 4096));
  SENNIT_RETURN_IF_ERROR(find_fabric(arguments, &problem));
  const Result<int> gpus = count_gpus(arguments, problem);
  if (!gpus) return gpus.status();
  SENNIT_RETURN_IF_ERROR(settle_capacities(arguments, &problem));
  SENNIT_RETURN_IF_ERROR(settle_mesh_and_batch(arguments, *gpus, &problem));
  SENNIT_RETURN_IF_ERROR(check(problem.job));
  SENNIT_RETURN_IF_ERROR(check_memory(problem.job));
  const Result<Operation> operation = make_operation(arguments, *gpus);
  if (!operation) return operation.status();
  problem.operation = *operation;
  return problem;
}

Answer answer_of(const Problem& problem, bool with_curve) {
  const Job& job = problem.job;
  const GpuFabric network(problem.tree, job.gpu.scale_up_bytes_per_s.value);
  const std::vector<Places> places = placements(problem.tree, job.mesh.gpus());
  const MeshLayout layout = lay_out(job.mesh, network, places[0].positions);
  Answer answer;
  answer.step = step_time(job, layout);
  answer.memory = memory_of(job);
  answer.cost = cost_of(job, answer.step, problem.operation);
  Load all{std::vector<double>(problem.tree.groups.size(), 0),
           std::vector<double>(problem.tree.groups.size(), 0)};
  for (const Traffic& call : traffic(job)) {
    const MeshLayout::Dimension& dimension = layout.of[static_cast<size_t>(call.axis)];
    answer.calls.push_back(
        {call, least_time(call, layout), seconds_of(call, layout, job.constants)});
    add_load(call, dimension.load, call.times, &all);
    if (!answer.dimensions.empty() && answer.dimensions.back().name == call.groups) continue;
    answer.dimensions.push_back({call.groups, dimension.groups.size(), dimension.groups[0].size(),
                                 network.spread(dimension.groups, places[0].positions)});
  }
  answer.all_calls = network.bound(all, 1, 1);
  answer.phases = phases_of(job, layout, answer.step);
  for (const Places& place : places)
    for (const Mesh& order : orders_of(job.mesh))
      answer.options.push_back(
          {order, place.name, step_time(job, lay_out(order, network, place.positions))});
  std::stable_sort(answer.options.begin(), answer.options.end(),
                   [](const Option& a, const Option& b) { return a.step.total < b.step.total; });
  for (size_t i = answer.options.size(); i-- > 0;)
    if (answer.options[i].mesh == job.mesh && answer.options[i].placement == places[0].name)
      answer.given = i;
  const double sequences = static_cast<double>(job.batch) * job.mesh.size(Axis::data);
  const Result<Job> faster = fastest_job(job, network, job.mesh.gpus(),
                                         {sequences, 0, 0, shape_of(problem.tree).ranks_per_host});
  if (faster && !(faster->mesh == job.mesh)) {
    answer.faster_step = step_time(*faster, lay_out(faster->mesh, network, places[0].positions));
    if (answer.faster_step.tokens_per_s > answer.step.tokens_per_s) answer.faster = *faster;
  }
  if (with_curve) answer.curve = curve(job, problem.operation, problem.tree, problem.switch_ports);
  return answer;
}

}  // namespace sennit::forecast
