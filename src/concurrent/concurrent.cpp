// concurrent.cpp: all process groups of a set in one simulation, a simulation::GroupCall each.
//
// Groups whose trees are alike share their plan and their blueprint, so a mesh of a thousand groups
// is planned once a shape. The closed form knows neither how bursts of groups that share an uplink
// meet nor how stages wait for each other there: the few best plans are simulated.
#include "concurrent/concurrent.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include <fmt/core.h>

#include "base/index.hpp"
#include "collectives/algorithm.hpp"
#include "plan/planner.hpp"
#include "simulate/ranks.hpp"

namespace sennit {
namespace {

constexpr uint64_t kHopeless = 2;  // times what the best is predicted to take: not tried
constexpr double kNear = 1.02;     // times the bound: no more chunks are tried
constexpr uint32_t kMostChunks = 1024;

struct GroupKind {  // of group: what all groups of one call and shape share
  TierTree tree;
  Plan plan;  // candidate 0's
  size_t choice = 0;
};

struct Member {  // a process group
  size_t call = 0;
  const GroupKind* kind = nullptr;
  std::vector<int32_t> positions;
};

// The groups of a set, those that look alike planned once.
class PlannedSet {
 public:
  PlannedSet(const TierTree& tree, std::span<const ConcurrentCall> calls)
      : tree_(tree), calls_(calls) {}

  Status plan(const PlanOptions& options, bool shares);
  // With the n-th best plan of every kind, in `more_chunks` times as many chunks as it says.
  Result<SimulatedSet> simulate(size_t choice, uint32_t more_chunks,
                                const SimulateOptions& options) const;
  size_t most_choices() const;

 private:
  static size_t choices(const GroupKind& kind);

  const TierTree& tree_;
  const std::span<const ConcurrentCall> calls_;
  std::deque<GroupKind> kinds_;  // blueprints point to their trees
  std::vector<Member> members_;
  SimulatedSet set_;  // without times
};

Status PlannedSet::plan(const PlanOptions& options, bool shares) {
  SharedTree shared(tree_, calls_);
  std::map<std::pair<size_t, std::string>, GroupKind*> known;
  for (size_t c = 0; c < calls_.size(); c++)
    for (const std::vector<int>& group : calls_[c].groups) {
      if (group.size() < 2) continue;
      MemberTree sub = shares ? shared.of(calls_[c].request, group) : member_tree(tree_, group);
      GroupKind*& kind = known[{c, sub.kind()}];
      if (kind == nullptr) {
        Result<Plan> plan = make_plan(calls_[c].request, sub.tree, options);
        if (!plan) return plan.status();
        kind = &kinds_.emplace_back(
            GroupKind{std::move(sub.tree), *std::move(plan), set_.choices.size()});
        set_.choices.push_back({c, 0, kind->tree.ranks(), {}});
      }
      set_.choices[kind->choice].groups++;
      members_.push_back({c, kind, std::move(sub.positions)});
    }
  return {};
}

// Candidates come best first.
size_t PlannedSet::choices(const GroupKind& kind) {
  const std::vector<Candidate>& all = kind.plan.candidates;
  return index(std::ranges::count_if(all, [&](const Candidate& candidate) {
    return candidate.predicted_ns / kHopeless <= all.front().predicted_ns;
  }));
}

size_t PlannedSet::most_choices() const {
  size_t most = 1;
  for (const GroupKind& kind : kinds_) most = std::max(most, choices(kind));
  return most;
}

Result<SimulatedSet> PlannedSet::simulate(size_t choice, uint32_t more_chunks,
                                          const SimulateOptions& options) const {
  SimulatedSet set = set_;
  std::vector<std::unique_ptr<Blueprint>> blueprints;  // by kind
  for (const GroupKind& kind : kinds_) {
    const Request& request = calls_[set.choices[kind.choice].call].request;
    Plan& plan = set.choices[kind.choice].plan = kind.plan;
    choose(request, kind.tree, std::min(choice, choices(kind) - 1), &plan);
    if (plan.parameters.chunks > 1 && plan.parameters.chunks <= kMostChunks / more_chunks)
      plan.parameters.chunks *= more_chunks;
    if (has_closed_form(kind.tree, request, plan))
      return Status(
          SENNIT_UNSUPPORTED,
          fmt::format("simulate: a ring of {} ranks beside other groups: at most {} are simulated; "
                      "choose another algorithm",
                      kind.tree.ranks(), kLongRing));
    blueprints.push_back(
        find_algorithm(plan.algorithm)->prepare(kind.tree, request, plan.parameters));
  }
  std::vector<simulation::GroupCall> calls;
  for (const Member& member : members_)
    calls.push_back({&calls_[member.call].request,
                     std::max(1u, set.choices[member.kind->choice].plan.parameters.chunks),
                     blueprints[member.kind->choice].get(), member.positions});
  std::vector<uint64_t> calls_ns;
  Result<SimulatedTime> all = simulation::simulate_calls(tree_, calls, options, &calls_ns);
  if (!all) return all.status();
  set.all = *std::move(all);
  set.call_ns.assign(calls_.size(), 0);
  for (size_t i = 0; i < calls_ns.size(); i++) {
    uint64_t& ns = set.call_ns[members_[i].call];
    ns = std::max(ns, calls_ns[i]);
  }
  return set;
}

}  // namespace

Result<SimulatedSet> simulate_concurrent(const TierTree& tree,
                                         std::span<const ConcurrentCall> calls,
                                         const SimulateOptions& options, PlanOptions plan_options,
                                         SetPlanning planning) {
  SENNIT_RETURN_IF_ERROR(check_calls(tree, calls));
  plan_options.cost = options.cost;
  PlannedSet planned(tree, calls);
  SENNIT_RETURN_IF_ERROR(planned.plan(plan_options, planning.shares));
  SimulateOptions trial = options;
  trial.observe = nullptr;
  const size_t tried =
      options.fluid ? 1 : std::min(planned.most_choices(), index(std::max(1, planning.tries)));
  size_t fastest = 0;
  uint32_t more_chunks = 1;
  std::optional<SimulatedSet> kept;
  if (tried > 1) {
    Status first_failure;  // where some cannot be simulated, others may
    for (size_t choice = 0; choice < tried; choice++) {
      Result<SimulatedSet> set = planned.simulate(choice, 1, trial);
      if (!set && first_failure.ok()) first_failure = set.status();
      if (!set || (kept && set->all.time_ns >= kept->all.time_ns)) continue;
      fastest = choice;
      kept = *std::move(set);
    }
    if (!kept) return first_failure;
    // Bursts that meet at a shared uplink leave it idle at times; smaller ones less so.
    const Bound bound = set_bound(tree, calls);
    if (plan_options.chunk_bytes == 0 && bound.known &&
        static_cast<double>(kept->all.time_ns) > kNear * static_cast<double>(bound.time_ns)) {
      Result<SimulatedSet> set = planned.simulate(fastest, 2, trial);
      if (set && set->all.time_ns < kept->all.time_ns) {
        more_chunks = 2;
        kept = *std::move(set);
      }
    }
  }
  // Simulated again only for who observes it, who saw nothing of the trials.
  if (kept && !options.observe) return *std::move(kept);
  return planned.simulate(fastest, more_chunks, options);
}

}  // namespace sennit
