// `sennit simulate --groups SIZE --stride N`: process groups of a mesh at the same time, their
// bound as a set, and what the order of the mesh costs.
//
// In fabric order, blocks of SIZE * N ranks hold N groups each, whose members are N apart. Every
// order that makes as many groups is compared by its bound; the best of them is simulated as well.
#include <algorithm>
#include <chrono>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/index.hpp"
#include "base/text/json.hpp"
#include "command/plan/simulate.hpp"
#include "command/write.hpp"
#include "concurrent/concurrent.hpp"
#include "plan/planner.hpp"

namespace sennit::plan {
namespace {

using Json = nlohmann::ordered_json;

double ratio(uint64_t a, uint64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

struct Order {
  int stride = 1;
  ConcurrentCall call;
  Bound bound;
};

struct Answer {
  Order order, best;  // best: by bound; the same stride where there is no better
  std::vector<std::pair<int, Bound>> orders;  // by stride
  SimulatedSet simulated;
  uint64_t best_ns = 0;
  int idle = 0;  // ranks in no group
  double seconds = 0;
};

int most_groups(int ranks, int size, int stride) {
  return static_cast<int>(ranks / (static_cast<int64_t>(size) * stride)) * stride;
}

Order make_order(const Problem& problem, int size, int stride, int groups) {
  Order order;
  order.stride = stride;
  order.call.request = problem.request;
  for (int g = 0; g < groups; g++) {
    order.call.groups.emplace_back();
    for (int i = 0; i < size; i++)
      order.call.groups.back().push_back(g / stride * size * stride + g % stride + i * stride);
  }
  order.bound = set_bound(problem.tree, {&order.call, 1});
  return order;
}

// Strides that make as many groups of the same ranks.
std::vector<int> other_strides(int ranks, int size, int groups, int stride) {
  std::vector<int> strides = {stride};
  for (int s = 1; s <= ranks / size; s++)
    if (s != stride && (ranks / size) % s == 0 && most_groups(ranks, size, s) >= groups)
      strides.push_back(s);
  std::sort(strides.begin(), strides.end());
  return strides;
}

Result<Answer> answer(const Problem& problem, const SimulateArguments& arguments, Watch* watch) {
  const int ranks = problem.tree.ranks(), size = arguments.groups,
            stride = std::max(1, arguments.stride);
  const int groups = most_groups(ranks, size, stride);
  if (groups == 0)
    return invalid(
        fmt::format("--groups {} --stride {}: {} ranks that are {} apart need {} ranks, and there "
                    "are {}",
                    size, stride, size, stride, static_cast<int64_t>(size) * stride, ranks));
  Answer found;
  found.idle = ranks - groups * size;
  found.order = make_order(problem, size, stride, groups);
  SENNIT_RETURN_IF_ERROR(check_calls(problem.tree, {&found.order.call, 1}));
  PlanOptions plan_options = problem.options;
  if (arguments.chunks > 0)
    plan_options.chunk_bytes =
        std::max<uint64_t>(1, (problem.bytes + arguments.chunks - 1) / arguments.chunks);
  found.best = found.order;
  for (const int s : other_strides(ranks, size, groups, stride)) {
    Order other = s == stride ? found.order : make_order(problem, size, s, groups);
    found.orders.emplace_back(s, other.bound);
    if (other.bound.known && found.best.bound.known &&
        other.bound.time_ns < found.best.bound.time_ns)
      found.best = std::move(other);
  }
  SimulateOptions options = simulate_options(problem, arguments);
  const auto began = std::chrono::steady_clock::now();
  if (found.best.stride != stride) {
    const Result<SimulatedSet> best =
        simulate_concurrent(problem.tree, {&found.best.call, 1}, options, plan_options);
    Progress::wipe();
    if (!best) return best.status();
    found.best_ns = best->all.time_ns;
  }
  if (!arguments.fluid) options.observe = std::ref(*watch);
  Result<SimulatedSet> simulated =
      simulate_concurrent(problem.tree, {&found.order.call, 1}, options, plan_options);
  Progress::wipe();
  if (!simulated) return simulated.status();
  found.simulated = *std::move(simulated);
  if (found.best.stride == stride) found.best_ns = found.simulated.all.time_ns;
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return found;
}

// "1 in a host, 8 to 24 in a pod".
std::string members_text(const TierTree& tree, const std::vector<std::vector<int>>& groups) {
  std::vector<int> least(tree.tiers.size(), tree.ranks()), most(tree.tiers.size(), 0);
  for (const std::vector<int>& group : groups)
    for (size_t i = 0; i < group.size();)  // ascending
      for (int g = tree.leaf_of_position[index(group[i])];;) {
        const Group& around = tree.groups[index(g)];
        const auto first = std::lower_bound(group.begin(), group.end(), around.first);
        const auto after = std::lower_bound(first, group.end(), around.first + around.size);
        const int held = static_cast<int>(after - first);
        least[around.tier] = std::min(least[around.tier], held);
        most[around.tier] = std::max(most[around.tier], held);
        if (around.parent >= 0) {
          g = around.parent;
          continue;
        }
        i++;
        break;
      }
  std::string text;
  for (size_t t = 1; t + 1 < tree.tiers.size(); t++)
    if (most[t] > 0)
      text += fmt::format("{}{}{} in a {}", text.empty() ? "" : ", ",
                          least[t] < most[t] ? fmt::format("{} to ", least[t]) : "", most[t],
                          tree.tiers[t].name);
  return text;
}

std::string orders_text(const TierTree& tree, const Answer& found) {
  std::string text =
      fmt::format("\n{:>8} {:>12} {:>10} {:>10}\n", "stride", "bound", "binds", "x least");
  for (const auto& [stride, bound] : found.orders)
    text += fmt::format("{:>8} {:>12} {:>10} {:>10}{}\n", stride,
                        bound.known ? time_text(bound.time_ns) : "unknown",
                        tier_name(tree, bound.binding_tier),
                        bound.known ? times_text(bound.time_ns, found.best.bound.time_ns) : "-",
                        stride == found.order.stride ? "  this order" : "");
  return text;
}

std::string text_of(const Problem& problem, const SimulateArguments& arguments, const Answer& found,
                    const std::vector<std::vector<double>>& load) {
  const TierTree& tree = problem.tree;
  const SimulatedTime& all = found.simulated.all;
  const Bound& bound = found.order.bound;
  std::string text(name(problem.request.collective));
  if (problem.bytes > 0)
    text += fmt::format(" of {} {}", bytes_text(static_cast<double>(problem.bytes)),
                        name(problem.request.type));
  text += fmt::format(
      " by each of {} groups of {} ranks, {} apart, at the same time; {} ranks of {}{}\n",
      found.order.call.groups.size(), arguments.groups, found.order.stride, tree.ranks(),
      problem.fabric, found.idle > 0 ? fmt::format(", {} of them idle", found.idle) : "");
  text += fmt::format(
      "members of a group: {}\nmodel: {}{}\n", members_text(tree, found.order.call.groups),
      model_text(problem),
      arguments.fluid ? "; fluid: no chunks to fill, nothing to post or to reduce" : "");
  for (const SimulatedSet::Choice& choice : found.simulated.choices)
    text += fmt::format("schedule of {} groups: {}, {}\n", choice.groups, choice.plan.algorithm,
                        choice.plan.parameters.to_text());
  if (problem.assumed())
    text +=
        fmt::format("ASSUMED: the fabric does not say the capacity of {}\n", problem.assumed_tiers);
  text += fmt::format("\nSIMULATED time {}", time_text(all.time_ns));
  if (bound.known)
    text += fmt::format(", {:.2f} x the bound of the set, {}: {}",
                        ratio(all.time_ns, bound.time_ns), time_text(bound.time_ns), bound.why);
  else
    text += fmt::format("; the bound of the set is unknown: {}", bound.why);
  if (arguments.fluid)
    text += fmt::format("\n{} of it latency, {} rounds", time_text(all.latency_ns), all.rounds);
  text += fmt::format(
      "\n{} messages; {} ranks simulated, each for all that do the same; took {:.2f} s\n\n",
      all.messages, all.rank_classes, found.seconds);
  text += tiers_text(tree, all, load, arguments.fluid);
  if (!bound.known || found.orders.size() < 2) return text;
  text += orders_text(tree, found);
  const bool all_known =
      std::ranges::all_of(found.orders, [](const auto& order) { return order.second.known; });
  if (found.best.stride == found.order.stride)
    return text + (all_known ? "no other order of these groups has a lower bound\n"
                             : "no other order of these groups is known to have a lower bound\n");
  return text + fmt::format(
                    "members {} apart: simulated {}; this order takes {:.2f} times as long\n",
                    found.best.stride, time_text(found.best_ns), ratio(all.time_ns, found.best_ns));
}

Json json_of(const Problem& problem, const SimulateArguments& arguments, const Answer& found,
             const std::vector<std::vector<double>>& load) {
  const SimulatedTime& all = found.simulated.all;
  const Bound& bound = found.order.bound;
  const auto bound_us = [](const Bound& b) { return b.known ? Json(us(b.time_ns)) : Json(); };
  const auto binding_tier = [&](const Bound& b) {
    return b.binding_tier >= 0 ? Json(tier_name(problem.tree, b.binding_tier)) : Json();
  };
  Json schedules = Json::array(), orders = Json::array();
  for (const SimulatedSet::Choice& choice : found.simulated.choices)
    schedules.push_back({{"groups", choice.groups},
                         {"algorithm", choice.plan.algorithm},
                         {"parameters", choice.plan.parameters.to_text()}});
  for (const auto& [stride, order_bound] : found.orders)
    orders.push_back({{"stride", stride},
                      {"bound_us", bound_us(order_bound)},
                      {"binding_tier", binding_tier(order_bound)}});
  return {{"simulated", true},
          {"collective", name(problem.request.collective)},
          {"datatype", name(problem.request.type)},
          {"op", problem.request.reduces() ? Json(name(problem.request.op)) : Json()},
          {"bytes", problem.bytes},
          {"ranks", problem.tree.ranks()},
          {"groups", found.order.call.groups.size()},
          {"group_ranks", arguments.groups},
          {"stride", found.order.stride},
          {"idle_ranks", found.idle},
          {"fabric", problem.fabric},
          {"capacities_known", !problem.assumed()},
          {"fluid", arguments.fluid},
          {"schedules", schedules},
          {"time_us", us(all.time_ns)},
          {"bound_us", bound_us(bound)},
          {"binding_tier", binding_tier(bound)},
          {"bound_why", bound.why},
          {"best_stride", found.best.stride},
          {"best_bound_us", bound_us(found.best.bound)},
          {"best_time_us", us(found.best_ns)},
          {"orders", orders},
          {"latency_us", arguments.fluid ? Json(us(all.latency_ns)) : Json()},
          {"rounds", arguments.fluid ? Json(all.rounds) : Json()},
          {"messages", all.messages},
          {"ranks_simulated", all.rank_classes},
          {"scratch_bytes", all.scratch_bytes},
          {"tiers", tiers_json(problem.tree, all, load, arguments.fluid)}};
}

}  // namespace

Status simulate_groups(const SimulateArguments& arguments) {
  if (arguments.groups == 0)
    return invalid("--stride is of --groups: say how many ranks a group has");
  if (!arguments.radices.empty() || arguments.whole_stages >= 0)
    return invalid(
        "--radices and --whole-stages are of one collective of all ranks, not of --groups");
  const Result<Problem> problem = make_problem(arguments);
  if (!problem) return problem.status();
  SENNIT_RETURN_IF_ERROR(check_use(arguments, problem->tree));
  Watch watch(problem->tree, problem->options.cost);
  const Result<Answer> found = answer(*problem, arguments, &watch);
  if (!found) return found.status();
  const std::vector<std::vector<double>> load = watch.load(found->simulated.all.time_ns);
  if (!arguments.trace.empty()) SENNIT_RETURN_IF_ERROR(write_text(arguments.trace, watch.trace()));
  if (!arguments.json.empty())
    SENNIT_RETURN_IF_ERROR(write_text(
        arguments.json, json_to_text(json_of(*problem, arguments, *found, load), 2) + "\n"));
  if (arguments.json != "-" && arguments.trace != "-")
    fmt::print("{}", text_of(*problem, arguments, *found, load));
  return {};
}

}  // namespace sennit::plan
