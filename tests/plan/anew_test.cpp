// anew_test.cpp: what planning anew brings where a fabric carries less than was thought.
//
// ctest not-under-tsan: it has one thread
#include "plan/anew.hpp"

#include <gtest/gtest.h>

#include "topology/fabric/slow_boundary.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

TierTree tree(const std::string& spec) {
  Result<TierTree> made = synthetic_tree(spec);
  EXPECT_TRUE(made.ok());
  return *std::move(made);
}

Request of_16_mb() {
  Request request;
  request.collective = Collective::all_reduce;
  request.count = 4'000'000;
  return request;
}

PlannedAnew anew(const TierTree& declared, const std::vector<SlowBoundary>& slow) {
  PlanOptions options;
  const Result<Plan> stale = make_plan(of_16_mb(), declared, options);
  EXPECT_TRUE(stale.ok());
  Result<PlannedAnew> planned =
      plan_anew(declared, slowed(declared, slow), of_16_mb(), *stale, options);
  EXPECT_TRUE(planned.ok()) << planned.status().text();
  return *std::move(planned);
}

TEST(PlanAnew, GoesAroundASlowHost) {
  const TierTree declared = tree("racks=2x4;nic=400Mbit/s;oversubscription=7");
  const PlannedAnew planned = anew(declared, {{"h0", true, 250}, {"h0", false, 250}});
  EXPECT_GT(planned.gain(), 0.4);
  EXPECT_LE(planned.anew_ns, 1.05 * static_cast<double>(planned.plan.bound.time_ns));
}

TEST(PlanAnew, GoesAroundASlowRackWhereThereAreMoreThanTwo) {
  const TierTree declared = tree("racks=4x2;nic=400Mbit/s;oversubscription=5");
  EXPECT_GT(anew(declared, {{"rack0", true, 250}, {"rack0", false, 250}}).gain(), 0.3);
}

TEST(PlanAnew, CannotGoAroundOneOfTwoRacks) {
  const TierTree declared = tree("racks=2x4;nic=400Mbit/s;oversubscription=7");
  EXPECT_LT(std::abs(anew(declared, {{"rack0", true, 250}, {"rack0", false, 250}}).gain()), 0.01);
}

TEST(PlanAnew, SaysWhatItCannotSimulate) {
  const TierTree declared = tree("racks=2x4;nic=400Mbit/s;oversubscription=7");
  Plan stale;
  stale.algorithm = "no such one";
  EXPECT_FALSE(plan_anew(declared, declared, of_16_mb(), stale, {}).ok());
}

}  // namespace
}  // namespace sennit
