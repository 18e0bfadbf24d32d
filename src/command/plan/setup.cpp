// From the command line of `sennit plan` and `sennit simulate` to a request on a tier tree, and the
// words that both use.
#include <algorithm>
#include <cstdio>

#include <fmt/ranges.h>

#include "base/index.hpp"
#include "base/options.hpp"
#include "collectives/algorithm.hpp"
#include "command/plan/plan.hpp"
#include "command/topo/read/read.hpp"
#include "cost/rates.hpp"
#include "plan/planner.hpp"
#include "plan/tuning/calibration.hpp"
#include "simulate/simulate.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"

namespace sennit::plan {
namespace {

constexpr const char* kUsualBytes = "1G";
constexpr int kMostRanks = 1 << 20;

// What the collective has no use for is refused, not passed over.
Status check_use(const Arguments& arguments, Collective collective) {
  const auto refuse = [&](const char* option, const std::string& value, const char* why) {
    return invalid(fmt::format("{} {}: {} {}: leave it out", option, value, name(collective), why));
  };
  if (collective == Collective::send_recv)
    return invalid(
        "send_recv is of two ranks and has no schedule of all: expected all_reduce, all_gather, "
        "reduce_scatter, broadcast, reduce, all_to_all, gather, scatter or barrier");
  if (arguments.root >= 0 && !has_root(collective))
    return refuse("--root", std::to_string(arguments.root), "has no root");
  Request request;
  request.collective = collective;
  if (!arguments.op.empty() && !request.reduces())
    return refuse("--op", arguments.op, "reduces nothing");
  if (collective != Collective::barrier) return {};
  if (!arguments.bytes.empty()) return refuse("--bytes", arguments.bytes, "moves no data");
  if (!arguments.type.empty()) return refuse("--datatype", arguments.type, "moves no data");
  return {};
}

Result<Request> make_request(const Arguments& arguments, Collective collective,
                             const TierTree& tree) {
  const Result<DataType> type = parse_type(arguments.type.empty() ? "float32" : arguments.type);
  if (!type) return Status(type.status().kind(), "--datatype: " + type.status().text());
  const Result<Op> op = parse_op(arguments.op.empty() ? "sum" : arguments.op);
  if (!op) return Status(op.status().kind(), "--op: " + op.status().text());
  if (!applies(*op, *type))
    return invalid(fmt::format("--op {}: bitwise operations are of integer types, not of {}",
                               name(*op), name(*type)));
  const Result<uint64_t> bytes =
      parse_bytes(arguments.bytes.empty() ? kUsualBytes : arguments.bytes);
  if (!bytes) return Status(bytes.status().kind(), "--bytes: " + bytes.status().text());
  const int ranks = arguments.groups > 0 ? arguments.groups : tree.ranks();
  const int root = std::max(0, arguments.root);
  if (root >= ranks)
    return invalid(
        fmt::format("--root {}: expected a rank from 0 to {}", arguments.root, ranks - 1));
  Request request;
  request.collective = collective;
  request.type = *type;
  request.op = *op;
  const bool vector = request.collective == Collective::all_reduce ||
                      request.collective == Collective::broadcast ||
                      request.collective == Collective::reduce;
  request.count = *bytes / type_bytes(*type) / (vector ? 1 : static_cast<uint64_t>(ranks));
  if (request.collective == Collective::barrier) request.count = 0;
  // As MPI's and PyTorch's are: the root does not copy its own.
  request.in_place = request.collective == Collective::broadcast;
  if (request.count == 0 && request.collective != Collective::barrier)
    return invalid(fmt::format("--bytes {}: less than one {}{}: expected {} or more",
                               arguments.bytes, name(*type),
                               vector ? "" : fmt::format(" for each of {} ranks", ranks),
                               type_bytes(*type) * (vector ? 1 : static_cast<uint64_t>(ranks))));
  if (const Status size = check_size(request, tree.ranks()); !size.ok())
    return invalid(fmt::format("--bytes {}: {}", arguments.bytes, size.text()));
  if (has_root(request.collective))
    request.root = arguments.groups > 0 ? root : tree.position_of_rank[index(root)];
  return request;
}

Result<CostModel> make_cost(const Arguments& arguments, const TierTree& tree, bool on_gpus) {
  CostModel cost = on_gpus ? gpu_cost() : CostModel();
  cost.eager_bytes = static_cast<uint64_t>(option_integer("SENNIT_EAGER_BYTES"));
  if (!on_gpus && does_rdma(tree.root().wire) && !within_one_host(tree)) cost.post_ns = kRdmaPostNs;
  const auto time = [](const char* option, const std::string& text, uint64_t* ns) -> Status {
    if (text.empty()) return {};
    const std::optional<uint64_t> parsed = parse_time(text);
    if (!parsed || *parsed > kMostNs)
      return invalid(fmt::format("{} {}: expected a time such as 2us or 500ns, of 11 days at most",
                                 option, text));
    *ns = *parsed;
    return {};
  };
  SENNIT_RETURN_IF_ERROR(time("--post", arguments.post, &cost.post_ns));
  SENNIT_RETURN_IF_ERROR(time("--latency", arguments.latency, &cost.latency_ns));
  if (!arguments.latency.empty()) cost.way = Way::sockets;
  if (arguments.reduce == "free") {
    cost.reduce_bytes_per_s = kFreeReduction;
  } else if (!arguments.reduce.empty()) {
    const std::optional<uint64_t> rate = parse_rate(arguments.reduce);
    if (!rate || *rate == 0)
      return invalid(
          fmt::format("--reduce {}: expected a rate such as 8GB/s, or free", arguments.reduce));
    cost.reduce_bytes_per_s = *rate;
  }
  return cost;
}

// Every host has a GPU for each of its ranks.
bool ranks_on_gpus(const Fabric& fabric, int ranks_per_host) {
  std::vector<int> gpus(fabric.vertices.size(), 0);
  for (const Vertex& vertex : fabric.vertices)
    if (vertex.kind == VertexKind::gpu && vertex.host >= 0) gpus[index(vertex.host)]++;
  for (size_t v = 0; v < fabric.vertices.size(); v++)
    if (fabric.vertices[v].kind == VertexKind::host && gpus[v] < std::max(1, ranks_per_host))
      return false;
  return true;
}

// Tiers of which some group has no capacity, from the innermost outwards.
std::string unknown_tiers(const TierTree& tree) {
  std::string text;
  for (size_t t = 0; t < tree.tiers.size(); t++)
    for (size_t g = 1; g < tree.groups.size(); g++)
      if (tree.groups[g].tier == t &&
          !(tree.groups[g].egress.known() && tree.groups[g].ingress.known())) {
        text += (text.empty() ? "" : ", ") + tree.tiers[t].name;
        break;
      }
  return text;
}

// The one that --radices and --whole-stages are about: it exchanges in stages, with a radix each.
const Algorithm* staged_algorithm(Collective collective) {
  for (const Algorithm* algorithm : algorithms())
    if (algorithm->takes(collective).radices > 1) return algorithm;
  return nullptr;
}

// As many as ranks_on_all_hosts() makes, which memory may not hold.
uint64_t places_on(const Fabric& fabric, int ranks_per_host) {
  if (ranks_per_host == 0) return ranks_on_all_hosts(fabric, 0).size();
  const auto hosts = std::ranges::count(fabric.vertices, VertexKind::host, &Vertex::kind);
  return static_cast<uint64_t>(hosts) * static_cast<uint64_t>(ranks_per_host);
}

// The first so many of them.
std::vector<Placement> first_places(const Fabric& fabric, int ranks_per_host, uint64_t wanted) {
  std::vector<Placement> places;
  if (ranks_per_host == 0) places = ranks_on_all_hosts(fabric, 0);
  for (const Vertex& vertex : fabric.vertices) {
    if (vertex.kind != VertexKind::host) continue;
    for (int r = 0; r < ranks_per_host && places.size() < wanted; r++)
      places.push_back({vertex.name, -1, ""});
  }
  places.resize(wanted);
  return places;
}

// How many ranks there are, of so many places.
Result<uint64_t> ranks_of(const Arguments& arguments, const Fabric& fabric) {
  const uint64_t places = places_on(fabric, arguments.ranks_per_host);
  if (places == 0) return invalid("the fabric has no hosts: name another with --fabric");
  if (places < 2)
    return invalid(fmt::format(
        "{} has one rank, and a collective needs two: name a fabric, as in --fabric meta24k or "
        "--fabric 'racks=2x4;nic=50GB/s;oversubscription=7', or set --ranks-per-host",
        fabric.name.empty() ? "this host" : fabric.name));
  const uint64_t ranks = arguments.ranks == 0 ? places : static_cast<uint64_t>(arguments.ranks);
  if (arguments.ranks < 0 || ranks > places)
    return invalid(
        fmt::format("--ranks {}: the fabric has places for 2 to {}", arguments.ranks, places));
  if (ranks > kMostRanks)
    return invalid(fmt::format(
        "{} ranks, and {} is the most: use fewer --ranks-per-host, or --ranks", ranks, kMostRanks));
  return ranks;
}

// A rank's program of these names a range for every rank, so all programs grow with the square.
bool names_every_rank(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter;
}

}  // namespace

void add_arguments(const Command& command, Arguments* a) {
  command
      .option("collective", a->collective,
              "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, "
              "scatter or barrier")
      .required();
  command.option("-b,--bytes", a->bytes,
                 "size as sennit bench means it; K, M, G are powers of two (default 1G)");
  command.option(
      "--fabric", a->fabric,
      fmt::format("a fabric file, a topology.conf, or a synthetic tree ({}); else what this host's "
                  "sources say",
                  kSyntheticPresets));
  command.option("--ranks", a->ranks, "the first so many ranks of it (default: all)")
      .within(2, kMostRanks);
  command
      .option("--ranks-per-host", a->ranks_per_host,
              "default: as many as it has GPUs, at least one")
      .within(1, 4096);
  command.option("-d,--datatype", a->type, "element type (default float32)");
  command.option("-o,--op", a->op, "operation (default sum)");
  command.option("-r,--root", a->root, "root's rank (default 0)").within(0, kMostRanks);
  command.option("--algorithm", a->algorithm, "this one instead of the planner's choice");
  command
      .option("--chunks", a->chunks, "in so many pipeline chunks, instead of the planner's choice")
      .within(1, 4096);
  command
      .option("--radices", a->radices,
              "tiered: exchange in stages of so many, from the innermost outwards: 8,2,12,16,8")
      .separated_by_commas()
      .within(2, 65535);
  command
      .option("--whole-stages", a->whole_stages,
              "tiered all_reduce: so many outermost stages exchange whole pieces; 255: all")
      .within(0, 255);
  command.option("--post", a->post,
                 "time to post a message (default 2us, over RDMA 300ns; where ranks are GPUs 1us)");
  command.option(
      "--latency", a->latency,
      "of a message between hosts where the fabric says none (default 30us; over InfiniBand and "
      "RoCE what RDMA takes)");
  command.option(
      "--reduce", a->reduce,
      "how fast a rank reduces (default 8GB/s, a processor's), or free (default where ranks "
      "are GPUs)");
}

Result<Problem> make_problem(const Arguments& arguments) {
  const Result<Collective> collective = parse_collective(arguments.collective);
  if (!collective) return collective.status();
  SENNIT_RETURN_IF_ERROR(check_use(arguments, *collective));
  Result<topo::Reading> reading =
      arguments.fabric.empty() ? topo::read_here() : topo::read_one(arguments.fabric);
  if (!reading) return reading.status();
  const Result<uint64_t> ranks = ranks_of(arguments, reading->fabric);
  if (!ranks) return ranks.status();
  std::vector<Placement> places = first_places(reading->fabric, arguments.ranks_per_host, *ranks);
  Result<TierTree> tree = contract(reading->fabric, places);
  if (!tree) return tree.status();
  Problem problem;
  problem.fabric = reading->fabric.name.empty() ? "this host" : reading->fabric.name;
  problem.tree = *std::move(tree);
  const Result<Request> request = make_request(arguments, *collective, problem.tree);
  if (!request) return request.status();
  problem.request = *request;
  problem.bytes = static_cast<uint64_t>(payload_bytes(
      problem.request, arguments.groups > 0 ? arguments.groups : problem.tree.ranks()));
  problem.on_gpus = ranks_on_gpus(reading->fabric, arguments.ranks_per_host);
  const Result<CostModel> cost = make_cost(arguments, problem.tree, problem.on_gpus);
  if (!cost) return cost.status();
  problem.options.cost = *cost;
  problem.options.algorithm = arguments.algorithm;
  problem.assumed_tiers = unknown_tiers(problem.tree);
  problem.graph = std::move(reading->fabric);
  problem.places = std::move(places);
  return problem;
}

Result<Plan> make_plan(const Problem& problem, const Arguments& arguments) {
  Result<Plan> plan = sennit::make_plan(problem.request, problem.tree, problem.options);
  if (!plan) {
    const bool named =
        plan.status().kind() == SENNIT_NOT_FOUND || plan.status().kind() == SENNIT_UNSUPPORTED;
    if (!named || arguments.algorithm.empty()) return plan;
    std::string text = plan.status().text();  // which names the library's own setting
    if (const size_t at = text.find("SENNIT_ALGORITHM"); at != text.npos)
      text.replace(at, 16, "--algorithm");
    return Status(plan.status().kind(), text);
  }
  const bool forced =
      arguments.chunks > 0 || !arguments.radices.empty() || arguments.whole_stages >= 0;
  if (!forced) return plan;
  if (arguments.whole_stages >= 0 && problem.request.collective != Collective::all_reduce)
    return invalid(fmt::format("--whole-stages {}: of all_reduce only, not of {}: leave it out",
                               arguments.whole_stages, name(problem.request.collective)));
  if (!arguments.radices.empty() || arguments.whole_stages >= 0) {
    const Algorithm* staged = staged_algorithm(problem.request.collective);
    SENNIT_CHECK(staged != nullptr);
    if (!arguments.algorithm.empty() && arguments.algorithm != staged->name())
      return invalid(fmt::format("--radices and --whole-stages are of {}, not of {}",
                                 staged->name(), arguments.algorithm));
    if (!staged->applies(problem.tree, problem.request))
      return invalid(fmt::format("--radices and --whole-stages are of {}, which cannot do {}",
                                 staged->name(), name(problem.request.collective)));
    plan->algorithm = staged->name();
    plan->parameters.radices = arguments.radices;
    plan->parameters.whole_stages =
        static_cast<uint8_t>(std::clamp(arguments.whole_stages, 0, 255));
  }
  if (arguments.chunks > 0) plan->parameters.chunks = arguments.chunks;
  SENNIT_RETURN_IF_ERROR(check_parameters(*find_algorithm(plan->algorithm),
                                          problem.request.collective, plan->parameters));
  plan->predicted_ns = predicted_ns(problem.request, problem.tree, problem.options, plan->algorithm,
                                    plan->parameters);
  Candidate asked{plan->algorithm, plan->parameters, plan->predicted_ns, "", 0};
  for (Candidate& other : plan->candidates)
    if (other.rejected.empty()) other.rejected = "not what was asked for";
  std::erase_if(plan->candidates, [&](const Candidate& other) {
    return other.algorithm == asked.algorithm &&
           other.parameters.to_text() == asked.parameters.to_text();
  });
  plan->candidates.insert(plan->candidates.begin(), std::move(asked));
  return plan;
}

uint64_t simulated_ns(const Problem& problem, const Plan& plan) {
  SimulateOptions options;
  options.cost = problem.options.cost;
  options.in_flight_bytes = static_cast<uint64_t>(option_integer("SENNIT_IN_FLIGHT_BYTES"));
  options.most_messages = 100'000;
  options.most_programs = 256;
  options.queues = true;
  const Result<SimulatedTime> simulated = simulate(problem.tree, problem.request, plan, options);
  return simulated ? simulated->time_ns : 0;
}

Result<Facts> count(const Problem& problem, const Plan& plan) {
  constexpr uint64_t kMostMessages = 20'000'000;
  constexpr int kMostNamed = 8192;  // ranks, whose programs take some seconds
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  SENNIT_CHECK(algorithm != nullptr);
  const Estimate estimate =
      algorithm->estimate(problem.tree, problem.request, plan.parameters, problem.options.cost);
  Facts facts;
  facts.simulated_ns = simulated_ns(problem, plan);
  const int ranks = problem.tree.ranks();
  const bool long_work = estimate.messages * static_cast<uint64_t>(ranks) > kMostMessages ||
                         (names_every_rank(problem.request.collective) && ranks > kMostNamed);
  if (long_work && !has_closed_form(problem.tree, problem.request, plan) &&
      !algorithm->count(problem.tree, problem.request, plan.parameters))
    return facts;
  Result<Counted> counted =
      count_programs(problem.tree, problem.request, plan, problem.options.cost);
  // There is no memory for all programs: the plan is known without.
  if (counted.status().kind() == SENNIT_OUT_OF_RESOURCES) return facts;
  if (!counted) return counted.status();
  facts.programs = *std::move(counted);
  facts.counted = true;
  return facts;
}

std::vector<TierRow> tier_rows(const Problem& problem, const Plan& plan) {
  const TierTree& tree = problem.tree;
  std::vector<TierRow> rows(tree.tiers.size());
  for (size_t g = 1; g < tree.groups.size(); g++) {
    TierRow& row = rows[tree.groups[g].tier];
    if (row.groups++ == 0) row.first = static_cast<int>(g);
    row.alike = row.alike && tree.groups[g].egress.bytes_per_s ==
                                 tree.groups[index(row.first)].egress.bytes_per_s;
  }
  for (size_t t = 0; t < rows.size(); t++) {
    rows[t].tier = t;
    if (t < plan.bound.tier_ns.size()) rows[t].bound_ns = plan.bound.tier_ns[t];
  }
  std::erase_if(rows, [](const TierRow& row) { return row.groups == 0; });
  return rows;
}

std::string title(const Problem& problem) {
  const Request& request = problem.request;
  std::string text = fmt::format("{}", name(request.collective));
  if (request.collective != Collective::barrier)
    text += fmt::format(" of {} {}", bytes_text(static_cast<double>(problem.bytes)),
                        name(request.type));
  if (request.reduces()) text += fmt::format(" {}", name(request.op));
  return text + fmt::format(" over {} ranks of {}", problem.tree.ranks(), problem.fabric);
}

// What is assumed of latencies that the fabric does not declare, and which messages have more.
std::string latency_text(const Problem& problem) {
  const CostModel& cost = problem.options.cost;
  const TierTree& tree = problem.tree;
  Wire wire = Wire::unknown;
  bool others = false, asks = false;
  for (size_t g = 0; g < tree.groups.size(); g++) {
    if (tree.groups[g].children == 0) continue;
    const LatencySource source = latency_source(tree, static_cast<int>(g), cost);
    if (source == LatencySource::rdma) wire = slower(wire, tree.groups[g].wire);
    others = others || source == LatencySource::sockets;
    asks = asks || asking_ns(tree, static_cast<int>(g), cost) > 0;
  }
  const std::string asking =
      asks ? fmt::format(", over RDMA {} times as much above {}", 1 + cost.asking_latencies,
                         format_bytes(cost.eager_bytes))
           : "";
  const std::string rest =
      fmt::format("{} latency where the fabric says none", format_time(cost.latency_ns));
  if (wire == Wire::unknown) return rest + asking;
  const std::string rdma = fmt::format(
      "{}{} latency of RDMA ASSUMED over {}", format_time(cost.rdma_latency_ns),
      cost.switch_ns == 0 ? "" : fmt::format(" and {} a switch", format_time(cost.switch_ns)),
      name(wire));
  return (others ? rdma + ", " + rest : rdma) + asking;
}

std::string model_text(const Problem& problem) {
  const CostModel& cost = problem.options.cost;
  const std::string reduction =
      cost.reduce_bytes_per_s >= kFreeReduction
          ? "reductions free"
          : "reductions at " + rate_text({cost.reduce_bytes_per_s, Provenance::declared});
  return fmt::format("{} to post a message, {}{}, {}", format_time(cost.post_ns), reduction,
                     problem.on_gpus ? " (ranks are GPUs; --post and --reduce say otherwise)" : "",
                     latency_text(problem));
}

std::string assumption_text(const Problem& problem) {
  const TierTree& tree = problem.tree;
  const GroupRates rates = planning_rates(tree, problem.options.cost);
  uint64_t host = 0;  // bytes/s
  bool inside = false, above = false;
  for (size_t g = 1; g < tree.groups.size(); g++) {
    const Group& group = tree.groups[g];
    if (group.egress.known() && group.ingress.known()) continue;
    if (within_host(tree, group.parent))
      inside = true;
    else if (static_cast<int>(group.tier) <= lowest_network_tier(tree))
      host = group.egress.known() ? rates.ingress[g] : rates.egress[g];
    else
      above = true;
  }
  std::vector<std::string> parts;
  if (inside) parts.push_back("within a host the rate at which ranks reduce");
  if (host != 0) parts.push_back(format_rate(host) + " a host");
  if (above) parts.push_back("for a group of hosts a quarter of what is below");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string time_text(uint64_t ns) {
  const double value = static_cast<double>(ns);
  if (ns < 10'000'000) return fmt::format("{:.4g} us", value * 1e-3);
  if (ns < 10'000'000'000) return fmt::format("{:.4g} ms", value * 1e-6);
  return fmt::format("{:.4g} s", value * 1e-9);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  // From half a unit less on, so that nothing is printed as "1024 KiB".
  while (bytes >= 1023.5 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    unit++;
  }
  return fmt::format("{:.{}g} {}", bytes, bytes < 1 ? 3 : 4, units[unit]);
}

std::string times_text(uint64_t a, uint64_t b) {
  if (b == 0) return "-";
  const double ratio = static_cast<double>(a) / static_cast<double>(b);
  return ratio < 1000 ? fmt::format("{:.2f}", ratio) : fmt::format("{:.2g}", ratio);
}

std::string rate_text(const Capacity& capacity) {
  if (!capacity.known()) return "unknown";
  double rate = static_cast<double>(capacity.bytes_per_s);
  const char* const units[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
  size_t unit = 0;
  while (rate >= 1000 && unit + 1 < std::size(units)) {
    rate /= 1000;
    unit++;
  }
  return fmt::format("{:.4g} {}{}", rate, units[unit],
                     capacity.provenance == Provenance::assumed ? " assumed" : "");
}

std::string_view tier_name(const TierTree& tree, int tier) {
  return tier < 0 ? std::string_view("-") : std::string_view(tree.tiers[index(tier)].name);
}

int fail(const char* command, const Status& status) {
  fmt::print(stderr, "sennit {}: {}\n", command, status.text());
  return status.kind() == SENNIT_OUT_OF_RESOURCES ? 3 : 2;
}

}  // namespace sennit::plan
