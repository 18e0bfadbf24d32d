// anew.cpp: see plan/anew.hpp.
#include "plan/anew.hpp"

#include "simulate/simulate.hpp"

namespace sennit {
namespace {

constexpr uint64_t kMostMessages = 2'000'000;

}  // namespace

Result<PlannedAnew> plan_anew(const TierTree& planned, const TierTree& actual,
                              const Request& request, const Plan& stale,
                              const PlanOptions& options) {
  const Algorithm* const algorithm = find_algorithm(stale.algorithm);
  if (!algorithm || !algorithm->applies(planned, request))
    return invalid("no algorithm '" + stale.algorithm + "' for this call");
  Result<Plan> plan = make_plan(request, actual, options);
  if (!plan) return plan.status();
  SimulateOptions how;
  how.cost = options.cost;
  how.most_messages = kMostMessages;
  how.queues = true;
  how.every_rank_up_to = actual.ranks();  // the one on the slow fabric has no kinds, nor the other
  const std::unique_ptr<Blueprint> schedule =
      algorithm->prepare(planned, request, stale.parameters);
  const Result<SimulatedTime> before =
      simulate(actual, request, *schedule, stale.parameters.chunks, how);
  if (!before) return before.status();
  const Result<SimulatedTime> after = simulate(actual, request, *plan, how);
  if (!after) return after.status();
  return PlannedAnew{*std::move(plan), before->time_ns, after->time_ns};
}

}  // namespace sennit
