// From the command line of `sennit plan` and `sennit simulate` to a request on a tier tree, and the words
// that both use.
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "algorithm.hpp"
#include "command_plan.hpp"
#include "command_topo.hpp"
#include "options.hpp"
#include "rates.hpp"
#include "simulate.hpp"
#include "units.hpp"

namespace sennit::foresee {
namespace {

size_t index(int i) { return static_cast<size_t>(i); }

Result<Request> make_request(const Arguments& arguments, const TierTree& tree) {
  const Result<Collective> collective = parse_collective(arguments.collective);
  if (!collective) return collective.status();
  const Result<DataType> type = parse_type(arguments.type);
  if (!type) return type.status();
  const Result<Op> op = parse_op(arguments.op);
  if (!op) return op.status();
  const Result<uint64_t> bytes = parse_bytes(arguments.bytes);
  if (!bytes) return bytes.status();
  const int ranks = arguments.groups > 0 ? arguments.groups : tree.ranks();
  if (arguments.root < 0 || arguments.root >= ranks)
    return invalid(fmt::format("--root {}: expected a rank from 0 to {}", arguments.root, ranks - 1));
  Request request;
  request.collective = *collective;
  request.type = *type;
  request.op = *op;
  const bool vector = request.collective == Collective::all_reduce ||
                      request.collective == Collective::broadcast || request.collective == Collective::reduce;
  request.count = *bytes / type_bytes(*type) / (vector ? 1 : static_cast<uint64_t>(ranks));
  if (request.collective == Collective::barrier) request.count = 0;
  if (request.count == 0 && request.collective != Collective::barrier)
    return invalid(fmt::format("--bytes {}: less than one {} for each of {} ranks", arguments.bytes,
                               arguments.type, ranks));
  if (has_root(request.collective))
    request.root = arguments.groups > 0 ? arguments.root : tree.position_of_rank[index(arguments.root)];
  return request;
}

Result<CostModel> make_cost(const Arguments& arguments) {
  CostModel cost;
  const auto time = [](const char* option, const std::string& text, uint64_t* ns) -> Status {
    if (text.empty()) return {};
    const std::optional<uint64_t> parsed = parse_time(text);
    if (!parsed) return invalid(fmt::format("{} {}: expected a time such as 2us or 500ns", option, text));
    *ns = *parsed;
    return {};
  };
  SENNIT_RETURN_IF_ERROR(time("--post", arguments.post, &cost.post_ns));
  SENNIT_RETURN_IF_ERROR(time("--latency", arguments.latency, &cost.latency_ns));
  if (arguments.reduce == "free") {
    cost.reduce_bytes_per_s = uint64_t{1} << 62;
  } else if (!arguments.reduce.empty()) {
    const std::optional<uint64_t> rate = parse_rate(arguments.reduce);
    if (!rate || *rate == 0)
      return invalid(fmt::format("--reduce {}: expected a rate such as 8GB/s, or free", arguments.reduce));
    cost.reduce_bytes_per_s = *rate;
  }
  return cost;
}

}  // namespace

void add_arguments(CLI::App* command, Arguments* a) {
  command
      ->add_option(
          "collective", a->collective,
          "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter or "
          "barrier")
      ->required();
  command->add_option("-b,--bytes", a->bytes, "size as sennit bench means it; K, M, G are powers of two")
      ->capture_default_str();
  command->add_option("--fabric", a->fabric,
                      "a fabric file, a topology.conf, or a synthetic tree (meta24k); else what this host's "
                      "sources say");
  command->add_option("--ranks", a->ranks, "the first so many ranks of it (default: all)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--ranks-per-host", a->ranks_per_host, "default: as many as it has GPUs, at least one")
      ->check(CLI::Range(1, 4096));
  command->add_option("-d,--datatype", a->type, "element type")->capture_default_str();
  command->add_option("-o,--op", a->op, "operation")->capture_default_str();
  command->add_option("-r,--root", a->root, "root's rank")->capture_default_str();
  command->add_option("--algorithm", a->algorithm, "this one instead of the planner's choice");
  command->add_option("--chunks", a->chunks, "in so many pipeline chunks, instead of the planner's choice")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--radices", a->radices,
                   "tiered: exchange in stages of so many, from the innermost outwards: 8,2,12,16,8")
      ->delimiter(',');
  command
      ->add_option("--whole-stages", a->whole_stages,
                   "tiered all_reduce: so many outermost stages exchange whole pieces; 255: all")
      ->check(CLI::Range(0, 255));
  command->add_option("--post", a->post, "time to post a message (default 2us)");
  command->add_option("--latency", a->latency, "of a message where the fabric says none (default 30us)");
  command->add_option("--reduce", a->reduce, "how fast a rank reduces (default 8GB/s), or free");
}

Result<Problem> make_problem(const Arguments& arguments) {
  Result<topo::Reading> reading =
      arguments.fabric.empty() ? topo::read_here() : topo::read_one(arguments.fabric);
  if (!reading) return reading.status();
  std::vector<Placement> places = ranks_on_all_hosts(reading->fabric, arguments.ranks_per_host);
  if (places.empty()) return invalid("the fabric has no hosts: name another with --fabric");
  if (arguments.ranks < 0 || arguments.ranks > static_cast<int>(places.size()))
    return invalid(
        fmt::format("--ranks {}: the fabric has places for 1 to {}", arguments.ranks, places.size()));
  if (arguments.ranks > 0) places.resize(index(arguments.ranks));
  Result<TierTree> tree = contract(reading->fabric, places);
  if (!tree) return tree.status();
  Problem problem;
  problem.fabric = reading->fabric.name.empty() ? "this host" : reading->fabric.name;
  problem.tree = *std::move(tree);
  const Result<Request> request = make_request(arguments, problem.tree);
  if (!request) return request.status();
  problem.request = *request;
  problem.bytes = static_cast<uint64_t>(
      payload_bytes(problem.request, arguments.groups > 0 ? arguments.groups : problem.tree.ranks()));
  const Result<CostModel> cost = make_cost(arguments);
  if (!cost) return cost.status();
  problem.options.cost = *cost;
  problem.options.algorithm = arguments.algorithm;
  problem.assumed = !problem.tree.capacities_known();
  return problem;
}

Result<Plan> make_plan(const Problem& problem, const Arguments& arguments) {
  Result<Plan> plan = sennit::make_plan(problem.request, problem.tree, problem.options);
  if (!plan) return plan;
  const bool forced = arguments.chunks > 0 || !arguments.radices.empty() || arguments.whole_stages >= 0;
  if (!forced) return plan;
  for (const uint16_t radix : arguments.radices)
    if (radix < 2) return invalid(fmt::format("--radices: {} is less than 2", radix));
  if (!arguments.radices.empty() || arguments.whole_stages >= 0) {
    if (!arguments.algorithm.empty() && arguments.algorithm != "tiered")
      return invalid(
          fmt::format("--radices and --whole-stages are of tiered, not of {}", arguments.algorithm));
    const Algorithm* tiered = find_algorithm("tiered");
    if (!tiered || !tiered->applies(problem.tree, problem.request))
      return invalid(fmt::format("--radices and --whole-stages are of tiered, which cannot do a {}",
                                 name(problem.request.collective)));
    plan->algorithm = "tiered";
    plan->parameters.radices = arguments.radices;
    plan->parameters.whole_stages = static_cast<uint8_t>(std::clamp(arguments.whole_stages, 0, 255));
  }
  if (arguments.chunks > 0) plan->parameters.chunks = arguments.chunks;
  plan->predicted_ns =
      predicted_ns(problem.request, problem.tree, problem.options, plan->algorithm, plan->parameters);
  return plan;
}

Result<Facts> count(const Problem& problem, const Plan& plan) {
  constexpr uint64_t kMostMessages = 20'000'000;
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  SENNIT_CHECK(algorithm != nullptr);
  const Estimate estimate =
      algorithm->estimate(problem.tree, problem.request, plan.parameters, problem.options.cost);
  Facts facts;
  const bool computed = plan.algorithm == "ring" && problem.tree.ranks() > kLongRing;
  if (!computed && estimate.messages * static_cast<uint64_t>(problem.tree.ranks()) > kMostMessages)
    return facts;
  Result<Counted> counted = count_programs(problem.tree, problem.request, plan, problem.options.cost);
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
    row.alike =
        row.alike && tree.groups[g].egress.bytes_per_s == tree.groups[index(row.first)].egress.bytes_per_s;
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
    text += fmt::format(" of {} {}", bytes_text(static_cast<double>(problem.bytes)), name(request.type));
  if (request.reduces()) text += fmt::format(" {}", name(request.op));
  return text + fmt::format(" over {} ranks of {}", problem.tree.ranks(), problem.fabric);
}

std::string model_text(const CostModel& cost) {
  const std::string reduction = cost.reduce_bytes_per_s >= uint64_t{1} << 60
                                    ? "reductions free"
                                    : fmt::format("reductions at {}", format_rate(cost.reduce_bytes_per_s));
  return fmt::format("{} to post a message, {}, {} latency where the fabric says none",
                     format_time(cost.post_ns), reduction, format_time(cost.latency_ns));
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
  while (bytes >= 1024 && unit + 1 < std::size(units)) bytes /= 1024, unit++;
  return fmt::format("{:.4g} {}", bytes, units[unit]);
}

std::string rate_text(const Capacity& capacity) {
  if (!capacity.known()) return "unknown";
  double rate = static_cast<double>(capacity.bytes_per_s);
  const char* const units[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
  size_t unit = 0;
  while (rate >= 1000 && unit + 1 < std::size(units)) rate /= 1000, unit++;
  return fmt::format("{:.4g} {}{}", rate, units[unit],
                     capacity.provenance == Provenance::assumed ? " assumed" : "");
}

std::string_view tier_name(const TierTree& tree, int tier) {
  return tier < 0 ? std::string_view("-") : std::string_view(tree.tiers[index(tier)].name);
}

int fail(const char* command, const Status& status) {
  fmt::print(stderr, "sennit: {}: {}\n", command, status.text());
  return status.kind() == SENNIT_OUT_OF_RESOURCES ? 3 : 2;
}

}  // namespace sennit::foresee
