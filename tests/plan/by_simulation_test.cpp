// by_simulation_test.cpp: which candidates of a call the simulator times, and that the choice is
// then nearly the fastest of all by simulation.
//
// ctest not-under-tsan: it has one thread
#include "plan/by_simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cost/rates.hpp"
#include "plan/planner.hpp"
#include "tests/support/choice_by_simulation.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

using sennit_test::request_of;

// Racks of 1 to 5 hosts.
std::string unlike_racks(std::mt19937_64& random) {
  std::vector<uint64_t> hosts(2 + random() % 4);
  for (uint64_t& rack : hosts) rack = 1 + random() % 5;
  if (std::ranges::count(hosts, hosts[0]) == std::ssize(hosts)) hosts[0]++;
  return fmt::format("racks={};nic=1GB/s;oversubscription={}.{};latency=5us", fmt::join(hosts, ","),
                     1 + random() % 6, random() % 10);
}

TEST(BySimulation, OfSmallCallsOnUnlikeGroupsTheChoiceIsTheFastest) {
  std::mt19937_64 random(sennit_test::steady_seed());
  PlanOptions options;
  options.cost.post_ns = 2'000;
  std::vector<double> all;
  for (int round = 0; round < sennit_test::trials(12); round++) {
    const std::string fabric = unlike_racks(random);
    const TierTree tree = *synthetic_tree(fabric);
    for (int c = 0; c < static_cast<int>(Collective::barrier); c++)
      for (const uint64_t bytes : {256, 4 << 10, 32 << 10, 256 << 10}) {
        const Request request = request_of(static_cast<Collective>(c), bytes, tree.ranks(), 0);
        all.push_back(sennit_test::judge_choice(tree, request, options).behind);
        EXPECT_LE(all.back(), 1.5) << fabric << ": " << name(request.collective) << " of " << bytes;
      }
  }
  std::ranges::sort(all);
  const double mean =
      std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  fmt::print(
      "{} choices: {:.3f} of the fastest in the mean, 95th percentile {:.2f}, at worst {:.2f}\n",
      all.size(), mean, all[all.size() * 95 / 100], all.back());
  EXPECT_LE(mean, 1.02);
  EXPECT_LE(all[all.size() * 95 / 100], 1.1);
}

// Some hundred messages, of which the form knows the time less well than the simulator.
TEST(BySimulation, OfAQuarterOfAMegabyteTheChoiceIsTheFastestToo) {
  const TierTree tree = *synthetic_tree("racks=4,3;nic=1250MB/s;oversubscription=4.8;latency=20us");
  const Request request = request_of(Collective::all_reduce, 256 << 10, tree.ranks(), 0);
  EXPECT_LE(sennit_test::judge_choice(tree, request, {}).behind, 1.01);
}

// By the form alone the choice took 1.24 to 1.27 times as long as the fastest candidate.
TEST(BySimulation, LargeCallsAndManyRanksAreSimulatedToo) {
  struct Call {
    const char* fabric;
    Collective collective;
    uint64_t bytes;
    int root;
  };
  PlanOptions options;
  options.cost.post_ns = kRdmaPostNs;
  for (const auto& [fabric, collective, bytes, root] :
       {Call{"racks=8,1,4,8;nic=3GB/s;oversubscription=5;wire=infiniband;latency=2us",
             Collective::reduce, 8 << 20, 4},
        Call{"racks=5,1,7,8,1,1,2,6;nic=3GB/s;oversubscription=7;wire=infiniband;latency=2us",
             Collective::reduce, 16 << 20, 14},
        Call{"racks=3,6,2;ranks=3;nic=1250MB/s;oversubscription=1.4;local=32GB/s;wire=infiniband;"
             "latency=2us",
             Collective::all_to_all, 2048, 0}}) {
    const TierTree tree = *synthetic_tree(fabric);
    const Request request = request_of(collective, bytes, tree.ranks(), root);
    EXPECT_LE(sennit_test::judge_choice(tree, request, options, 1.5).behind, 1.1)
        << fabric << ": " << name(collective) << " of " << bytes;
  }
}

// What is simulated of a long call is a part of it.
TEST(BySimulation, OfALongCallThePredictionIsNearlyTheSimulation) {
  std::mt19937_64 random(sennit_test::steady_seed());
  PlanOptions options;
  for (int round = 0; round < sennit_test::trials(4); round++) {
    const std::string fabric = unlike_racks(random);
    const TierTree tree = *synthetic_tree(fabric);
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
      const Request request = request_of(collective, 16 << 20, tree.ranks(), 0);
      const Result<Plan> plan = make_plan(request, tree, options);
      ASSERT_TRUE(plan.ok()) << plan.status().text();
      SimulateOptions how;
      how.cost = options.cost;
      how.queues = true;
      const Result<SimulatedTime> whole = simulate(tree, request, *plan, how);
      ASSERT_TRUE(whole.ok()) << whole.status().text();
      EXPECT_NEAR(static_cast<double>(plan->predicted_ns) / static_cast<double>(whole->time_ns), 1,
                  0.08)
          << fabric << ": " << name(collective) << " by " << plan->algorithm << " in "
          << plan->parameters.chunks << " chunks";
    }
  }
}

bool is_closed_form(const std::string& fabric, uint64_t bytes, const PlanOptions& options) {
  const TierTree tree = *synthetic_tree(fabric);
  const Request request = request_of(Collective::all_reduce, bytes, tree.ranks(), 0);
  const Result<Plan> plan = make_plan(request, tree, options);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return std::ranges::all_of(plan->candidates, [&](const Candidate& one) {
    return one.predicted_ns == predicted_ns(request, tree, options, one.algorithm, one.parameters);
  });
}

TEST(BySimulation, TheClosedFormIsLeftWhereItIsRightOrNothingElseCanBeHad) {
  const PlanOptions options;
  EXPECT_FALSE(is_closed_form("racks=1,2,3,2;nic=1GB/s;oversubscription=5", 4096, options));
  EXPECT_TRUE(is_closed_form("racks=4x2;nic=1GB/s;oversubscription=5", 4096, options)) << "alike";
  EXPECT_TRUE(is_closed_form("racks=40,30;nic=1GB/s;oversubscription=5", 4096, options)) << "many";
  EXPECT_TRUE(is_closed_form("racks=1,2,3,2", 4096, options)) << "of assumed rates";
  PlanOptions crowded;
  crowded.cost.shared_cores.crowding_permille = 4'000;
  EXPECT_TRUE(is_closed_form("racks=1,2,3,2;nic=1GB/s;oversubscription=5", 4096, crowded));
}

// Which of the candidates are simulated must not decide: a goodput slows all of them alike.
TEST(BySimulation, AGoodputIsThatOfNarrowerLinks) {
  const std::string racks = "racks=1,3;oversubscription=4;latency=5us;nic=";
  const TierTree wide = *synthetic_tree(racks + "1GB/s"),
                 narrow = *synthetic_tree(racks + "300MB/s");
  PlanOptions options;
  options.cost.goodput_permille = 300;
  for (int c = 0; c < static_cast<int>(Collective::barrier); c++)
    for (const uint64_t bytes : {4 << 10, 128 << 10, 1 << 20, 8 << 20}) {
      const Request request = request_of(static_cast<Collective>(c), bytes, wide.ranks(), 0);
      const Result<Plan> slowed = make_plan(request, wide, options);
      const Result<Plan> plain = make_plan(request, narrow, {});
      ASSERT_TRUE(slowed.ok() && plain.ok());
      EXPECT_NEAR(
          static_cast<double>(slowed->predicted_ns) / static_cast<double>(plain->predicted_ns), 1,
          0.02)
          << name(request.collective) << " of " << bytes << ": " << slowed->algorithm << " and "
          << plain->algorithm;
    }
}

// Ranks may differ in that.
TEST(BySimulation, InPlaceOrNotThePlanIsTheSame) {
  const TierTree tree = *synthetic_tree("racks=1,2,3,2;nic=1GB/s;oversubscription=5");
  for (int c = 0; c < static_cast<int>(Collective::barrier); c++) {
    Request request = request_of(static_cast<Collective>(c), 16 << 10, tree.ranks(), 0);
    request.in_place = true;
    const Result<Plan> in_place = make_plan(request, tree, {});
    request.in_place = false;
    const Result<Plan> other = make_plan(request, tree, {});
    ASSERT_TRUE(in_place.ok() && other.ok());
    EXPECT_EQ(in_place->hash, other->hash) << name(request.collective);
  }
}

}  // namespace
}  // namespace sennit
