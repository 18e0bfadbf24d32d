// calibration_test.cpp: constants are found again from times that a model with other constants
// made, also where the times are noisy; what the trace does not tell of stays.
//
// ctest not-under-tsan: it has one thread
#include "plan/tuning/calibration.hpp"
#include "cost/rates.hpp"
#include "plan/bound.hpp"
#include "plan/planner.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "plan/tuning/table.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

TierTree racks() {
  TierTree tree = TierTree::uniform({4, 2}, {50'000'000, 28'625'000});
  for (Group& group : tree.groups)
    if (group.children > 0) group.latency_ns = group.parent < 0 ? 40'000 : 20'000;
  return tree;
}

Request request_of(Collective collective, uint64_t bytes) {
  Request request;
  request.collective = collective;
  request.type = DataType::uint8;
  request.count = bytes;
  return request;
}

// As many plans of each request as are worth trying, with the times that `truth` gives them.
std::vector<TimedPlan> trace_of(const TierTree& tree, const PlanOptions& options,
                                const CostModel& truth, uint64_t least, uint64_t most, double noise,
                                std::mt19937_64& random) {
  std::normal_distribution<double> spread(0, noise);
  PlanOptions real = options;
  real.cost = truth;
  std::vector<TimedPlan> trace;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::broadcast})
    for (uint64_t bytes = least; bytes <= most; bytes *= 8) {
      const Request request = request_of(collective, bytes);
      const Plan plan = *make_plan(request, tree, options);
      for (size_t i = 0; i < std::min<size_t>(plan.candidates.size(), 6); i++) {
        const Candidate& c = plan.candidates[i];
        const auto ns =
            static_cast<double>(predicted_ns(request, tree, real, c.algorithm, c.parameters));
        trace.push_back({request, c.algorithm, c.parameters,
                         static_cast<uint64_t>(ns * std::exp(spread(random)))});
      }
    }
  return trace;
}

CostModel shaped() {
  CostModel truth;
  truth.shared_cores.message_cpu_ns = 9'000;
  truth.shared_cores.crowding_permille = 4'000;
  truth.tiers = {{1000, 960, 1'500'000}, {400, 940, 250'000}, {600, 1000, 0}};
  return truth;
}

// A tuning file that cannot be read would end every start that comes after.
TEST(Calibration, OfNothingCanBeKeptAndReadAsWell) {
  const TierTree tree = racks();
  const CostModel cost = calibrate(tree, {}, {});
  EXPECT_EQ(cost.tiers, tier_costs(tree, {}));
  Tuning table;
  table.set_cost(tree.fingerprint(), cost);
  const Result<Tuning> again = Tuning::parse(table.to_text(), "f");
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again->to_text(), table.to_text());
}

TEST(Calibration, FindsTheModelThatMadeTheTimes) {
  std::mt19937_64 random(sennit_test::steady_seed());
  const TierTree tree = racks();
  PlanOptions options;
  options.cost.shared_cores.crowding_permille = 4'000;
  const std::vector<TimedPlan> trace = trace_of(tree, options, shaped(), 8, 16 << 20, 0, random);
  const uint64_t before = typical_factor_permille(tree, options, trace);
  options.cost = calibrate(tree, options, trace);
  const uint64_t after = typical_factor_permille(tree, options, trace);
  EXPECT_GT(before, 1'200u);
  EXPECT_LT(after, 1'080u);
  EXPECT_EQ(options.cost.shared_cores.crowding_permille, 4'000u);
  // It also tells of sizes that were not in the trace.
  const std::vector<TimedPlan> others = trace_of(tree, options, shaped(), 24, 8 << 20, 0, random);
  EXPECT_LT(typical_factor_permille(tree, options, others), 1'100u);
}

TEST(Calibration, IsNotLedAstrayByNoise) {
  std::mt19937_64 random(sennit_test::steady_seed());
  const TierTree tree = racks();
  PlanOptions options;
  options.cost.shared_cores.crowding_permille = 4'000;
  std::vector<TimedPlan> trace = trace_of(tree, options, shaped(), 8, 16 << 20, 0.1, random);
  trace[trace.size() / 2].measured_ns *= 50;  // one that came late
  options.cost = calibrate(tree, options, trace);
  std::mt19937_64 again(sennit_test::steady_seed());
  EXPECT_LT(typical_factor_permille(tree, options,
                                    trace_of(tree, options, shaped(), 8, 16 << 20, 0, again)),
            1'150u);
}

// A call whose data goes one way is timed with a barrier behind it, of which only the least time is
// taken off.
TEST(Calibration, WhatIsTimedBesideThePlanIsNoneOfIt) {
  std::mt19937_64 random(1);
  const TierTree tree = racks();
  const PlanOptions options;
  std::vector<TimedPlan> trace = trace_of(tree, options, options.cost, 8, 4096, 0, random);
  std::erase_if(
      trace, [](const TimedPlan& run) { return run.request.collective != Collective::broadcast; });
  for (TimedPlan& run : trace) run.measured_ns += 40'000;
  const CostModel found = calibrate(tree, options, trace);
  EXPECT_EQ(found.post_ns, options.cost.post_ns);
  for (const TierCost& tier : found.tiers) EXPECT_EQ(tier, TierCost());
}

// On a machine that is busy with other things a call of microseconds can take many milliseconds.
TEST(Calibration, WhatItFindsCanBeKeptHoweverSlowTheMachineWas) {
  for (const TierTree& tree : {racks(), TierTree::uniform({3}, {50'000'000})})
    for (const uint64_t slower : {1'000u, 1'000'000u, 1'000'000'000u}) {
      std::mt19937_64 random(1);
      PlanOptions options;
      std::vector<TimedPlan> trace = trace_of(tree, options, options.cost, 4096, 65536, 0, random);
      for (TimedPlan& run : trace) run.measured_ns *= slower;
      Tuning table;
      // each calibration begins with what the last one found
      for (int again = 0; again < 4; again++) {
        options.cost = calibrate(tree, options, trace);
        table.set_cost(tree.fingerprint(), options.cost);
        const Result<Tuning> read = Tuning::parse(table.to_text(), "kept");
        ASSERT_TRUE(read.ok()) << slower << " times slower: " << read.status().text();
      }
    }
}

TEST(Calibration, TimesBelowTheBoundContradictTheTree) {
  std::mt19937_64 random(sennit_test::steady_seed());
  const TierTree tree = racks();
  PlanOptions options;
  std::vector<TimedPlan> trace =
      trace_of(tree, options, options.cost, 1 << 20, 16 << 20, 0, random);
  EXPECT_EQ(below_bound(tree, trace), nullptr);
  const auto largest = std::ranges::max_element(
      trace, {}, [&](const TimedPlan& run) { return payload_bytes(run.request, tree.ranks()); });
  const uint64_t bound_ns = lower_bound(largest->request, tree).time_ns;
  largest->measured_ns = bound_ns * 95 / 100;
  EXPECT_EQ(below_bound(tree, trace), nullptr) << "within what clocks may be off";
  largest->measured_ns = bound_ns / 2;
  EXPECT_EQ(below_bound(tree, trace), &*largest);
  TierTree bursts = tree;
  for (Group& group : bursts.groups) group.egress.burst_bytes = group.ingress.burst_bytes = 1 << 30;
  EXPECT_EQ(below_bound(bursts, trace), nullptr) << "it passed through a bucket";
}

TEST(Calibration, LeavesAModelThatIsRight) {
  std::mt19937_64 random(1);
  const TierTree tree = racks();
  const PlanOptions options;
  const CostModel same =
      calibrate(tree, options, trace_of(tree, options, options.cost, 8, 16 << 20, 0, random));
  EXPECT_EQ(same.post_ns, options.cost.post_ns);
  EXPECT_EQ(same.shared_cores.message_cpu_ns, options.cost.shared_cores.message_cpu_ns);
  for (const TierCost& tier : same.tiers) EXPECT_EQ(tier, TierCost());
  CostModel untaught = options.cost;
  untaught.tiers = tier_costs(tree, untaught);
  EXPECT_EQ(calibrate(tree, options, {}), untaught) << "nothing to learn from";
}

}  // namespace
}  // namespace sennit
