// one_model_test.cpp: the planner's closed form and the simulator say the same of large messages
// that go straight.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <random>

#include "plan/planner.hpp"
#include "simulate/simulate.hpp"
#include "tests/support/random_trees.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

// Any shape; a group's boundary is 1 to 7 times narrower than its ranks' NICs together.
TierTree oversubscribed(std::mt19937_64& random, int ranks) {
  TierTree tree = random_tree(random, ranks);
  const uint64_t nic = 1'000'000'000 * (1 + random() % 25), over = 1 + random() % 7;
  for (size_t g = 1; g < tree.groups.size(); g++) {
    Group& group = tree.groups[g];
    const uint64_t together = nic * static_cast<uint64_t>(group.size);
    const uint64_t rate = group.size == 1 ? nic : std::max(together / over, nic / 2);
    group.egress = group.ingress = {rate, Provenance::declared};
  }
  for (Group& group : tree.groups)
    if (group.size > 1) group.latency_ns = 1'500 + 500 * uint64_t{group.tier};
  tree.finish();
  return tree;
}

TEST(OneModel, ClosedFormAndSimulatorAgreeOnWhatGoesStraight) {
  std::mt19937_64 random(sennit_test::seed());
  PlanOptions options;
  options.cost.post_ns = 300;
  options.cost.reduce_bytes_per_s = 1'000'000'000'000;  // copies of a rank's own are not the wire's
  SimulateOptions simulation;
  simulation.cost = options.cost;
  for (int round = 0; round < 60; round++) {
    const int ranks = 2 + static_cast<int>(random() % 23);
    const TierTree tree = oversubscribed(random, ranks);
    for (const Collective collective :
         {Collective::all_gather, Collective::all_to_all, Collective::broadcast, Collective::gather,
          Collective::scatter}) {
      Request request;
      request.collective = collective;
      request.count = (16 << 20) / 4;
      if (collective != Collective::broadcast) request.count /= static_cast<uint64_t>(ranks);
      if (has_root(collective)) request.root = round % ranks;
      Plan plan;
      plan.algorithm = "direct";
      const uint64_t planned = predicted_ns(request, tree, options, plan.algorithm, {});
      const Result<SimulatedTime> simulated = simulate(tree, request, plan, simulation);
      ASSERT_TRUE(simulated.ok()) << simulated.status().text();
      EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(simulated->time_ns), 1, 0.05)
          << "round " << round << ": " << name(collective) << ", root " << request.root << "\n"
          << tree.to_text();
    }
  }
}

}  // namespace
}  // namespace sennit
