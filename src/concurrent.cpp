// All process groups of a set in one simulation: one Part each. Groups whose trees are alike share their plan
// and their blueprint, so a mesh of a thousand groups is planned once a shape.
#include "concurrent.hpp"

#include <deque>
#include <map>

#include <fmt/format.h>

#include "algorithm.hpp"
#include "simulate_ranks.hpp"

namespace sennit {
namespace {

struct Kind {  // of group: what all groups of one call and shape share
  TierTree tree;
  Plan plan;
  std::unique_ptr<Blueprint> blueprint;
  size_t choice = 0;
};

Status prepare_kind(const Request& request, const PlanOptions& options, Kind* kind) {
  Result<Plan> plan = make_plan(request, kind->tree, options);
  if (!plan) return plan.status();
  if (plan->algorithm == "ring" && kind->tree.ranks() > kLongRing)
    return {SENNIT_UNSUPPORTED,
            fmt::format("simulate: a ring of {} ranks beside other groups: at most {} are simulated; choose "
                        "another algorithm",
                        kind->tree.ranks(), kLongRing)};
  kind->plan = *std::move(plan);
  kind->blueprint = find_algorithm(kind->plan.algorithm)->prepare(kind->tree, request, kind->plan.parameters);
  return {};
}

}  // namespace

Result<SimulatedSet> simulate_concurrent(const TierTree& tree, std::span<const ConcurrentCall> calls,
                                         const SimulateOptions& options, PlanOptions plan_options) {
  SENNIT_RETURN_IF_ERROR(check_calls(tree, calls));
  plan_options.cost = options.cost;
  SimulatedSet set;
  std::deque<Kind> kinds;  // blueprints point to their trees
  std::map<std::pair<size_t, std::string>, Kind*> known;
  std::vector<simulation::Part> parts;
  std::vector<size_t> call_of_part;
  for (size_t c = 0; c < calls.size(); c++)
    for (const std::vector<int>& group : calls[c].groups) {
      if (group.size() < 2) continue;
      MemberTree sub = member_tree(tree, group);
      Kind*& kind = known[{c, sub.kind()}];
      if (kind == nullptr) {
        kind = &kinds.emplace_back();
        kind->tree = std::move(sub.tree);
        SENNIT_RETURN_IF_ERROR(prepare_kind(calls[c].request, plan_options, kind));
        kind->choice = set.choices.size();
        set.choices.push_back({c, 0, kind->tree.ranks(), kind->plan});
      }
      set.choices[kind->choice].groups++;
      parts.push_back({&calls[c].request, std::max(1u, kind->plan.parameters.chunks), kind->blueprint.get(),
                       std::move(sub.positions)});
      call_of_part.push_back(c);
    }
  std::vector<uint64_t> part_ns;
  Result<SimulatedTime> all = simulation::simulate_parts(tree, parts, options, &part_ns);
  if (!all) return all.status();
  set.all = *std::move(all);
  set.call_ns.assign(calls.size(), 0);
  for (size_t i = 0; i < part_ns.size(); i++)
    set.call_ns[call_of_part[i]] = std::max(set.call_ns[call_of_part[i]], part_ns[i]);
  return set;
}

}  // namespace sennit
