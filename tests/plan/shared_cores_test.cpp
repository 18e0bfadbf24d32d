// shared_cores_test.cpp: what shared cores add to the plain model is behind two functions with one
// switch: with it off the planner is latency, posting and pipelined tiers, and asks no algorithm
// for more.
// ctest not-under-tsan: it has one thread
#include "plan/shared_cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/arithmetic.hpp"
#include "collectives/common.hpp"
#include "cost/rates.hpp"
#include "plan/planner.hpp"
#include "tests/support/random_trees.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

int asked = 0;  // how often the algorithm below was asked for more than its estimate

// Plans as if every message took 100 us of filling, and counts who asks.
class Asked : public Algorithm {
 public:
  std::string_view name() const override { return "asked"; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::barrier;
  }
  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }
  Estimate estimate(const TierTree& tree, const Request&, const Parameters&,
                    const CostModel&) const override {
    Estimate estimate;
    estimate.tier_ns.assign(tree.tiers.size(), 1'000);
    estimate.latency_ns = 7'000;
    estimate.messages = 3;
    return estimate;
  }
  SharedCoresEstimate on_shared_cores(const TierTree&, const Request&, const Parameters&,
                                      const CostModel&, const Estimate&) const override {
    asked++;
    return {.path_ns = 103'000, .all_messages = 12};
  }
  std::unique_ptr<Blueprint> prepare(const TierTree&, const Request&,
                                     const Parameters&) const override {
    return make_blueprint([](int) { return ProgramBuilder(false).finish(); });
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(Asked)

namespace {

TierTree four_ranks() { return TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000}); }

// Of one algorithm's estimate, by the formula of plan/pipeline.hpp written out once more.
uint64_t plain_ns(const TierTree& tree, const Request& request, const CostModel& cost,
                  const Candidate& candidate) {
  const Estimate e =
      find_algorithm(candidate.algorithm)->estimate(tree, request, candidate.parameters, cost);
  CostModel bare = cost;
  bare.message_bytes = 0;
  const Estimate payload =
      find_algorithm(candidate.algorithm)->estimate(tree, request, candidate.parameters, bare);
  const bool one_host = within_one_host(tree);
  const uint64_t chunks = candidate.parameters.chunks, later = chunks - 1;
  const uint64_t posts = e.messages * (one_host ? cost.shared_memory_post_ns : cost.post_ns);
  const uint64_t reduction_ns = transfer_ns(e.reduce_bytes, cost.reduce_bytes_per_s);
  Wide tiers = 0;
  uint64_t largest = 0, header = 0;
  for (size_t tier = 0; tier < e.tier_ns.size(); tier++) {
    tiers = e.at_once ? std::max(tiers, Wide{e.tier_ns[tier]}) : tiers + e.tier_ns[tier];
    largest = std::max(largest, e.tier_ns[tier]);
    header = std::max(header, e.tier_ns[tier] - payload.tier_ns[tier]);
  }
  const Wide sum =
      tiers + reduction_ns + transfer_ns(e.reduce_bytes_of_others, cost.reduce_bytes_per_s);
  const bool overlaps = e.posted_at_once && e.messages > 1 && !one_host;
  const uint64_t behind = overlaps ? 1000 - 1000 / e.messages : 0;
  const Wide moved = tiers / chunks, posted = Wide{posts} * behind / 1000;
  const Wide part = std::min(moved, posted) * 1000 / std::max({moved, posted, Wide{1}});
  const Wide hidden = std::min(moved, posted);
  const Wide first = Wide{e.latency_ns} + posts + sum / chunks - hidden +
                     hidden * part / 1000 * part / 1000 * part / 1000 / 8;
  const Wide moving = largest - largest / chunks + later * header, posting = Wide{posts} * later;
  const Wide reducing = reduction_ns - reduction_ns / chunks, working = reducing + posting;
  const Wide longer = std::max(moving, working), shorter = std::min(moving, working);
  const Wide share = shorter * 1000 / std::max(longer, Wide{1});
  Wide time = first + std::max(moving, reducing);
  if (one_host)
    time = first + std::max(moving, reducing) + posting;
  else if (host_rates_known(tree))
    time = first + longer + shorter * share / 1000 * share / 1000 * share / 1000 / 8;
  const Wide whole = Wide{e.latency_ns + posts};
  const Wide held = has_root(request.collective) ? e.held_percent : 100;
  if (held > 0 && chunks > 8)
    time = std::max(time, (whole * 8 + whole * (chunks - 8) * held / 100 + sum) / 8);
  const bool keeps =
      request.collective == Collective::all_gather || request.collective == Collective::gather ||
      request.collective == Collective::scatter || request.collective == Collective::all_to_all;
  const uint64_t copy_ns =
      keeps ? transfer_ns(block_bytes(request, 0), cost.reduce_bytes_per_s) : 0;
  if (const Wide copied = Wide{chunks} * posts + copy_ns; copy_ns > 0 && copied > time)
    time = copied - (copied - time) / 64;
  return static_cast<uint64_t>(time);
}

TEST(SharedCores, SwitchedOffThePlannerIsLatencyPostingAndPipelinedTiers) {
  std::mt19937_64 random(sennit_test::seed());
  int otherwise = 0;  // times that are others with the switch on
  for (int round = 0; round < 40; round++) {
    TierTree tree = random_tree(random, 2 + static_cast<int>(random() % 30));
    for (Group& group : tree.groups)
      group.egress.burst_bytes = group.ingress.burst_bytes = random() % 2 * (256 << 10);
    PlanOptions options;
    options.cost.message_bytes = random() % 2 * 100;
    // Where nothing is crowded, calls on unlike groups are simulated.
    options.cost.shared_cores = {
        .counted = false, .message_cpu_ns = 50'000, .crowding_permille = 1'001 + random() % 8'000};
    CostModel within = options.cost;
    within_one_machine(&within);
    EXPECT_EQ(within, options.cost);
    PlanOptions counting = options;
    counting.cost.shared_cores.counted = true;
    for (int c = 0; c < static_cast<int>(Collective::send_recv); c++) {
      Request request;
      request.collective = static_cast<Collective>(c);
      request.count = random() % 2'000'000;
      asked = 0;
      const Result<Plan> plan = make_plan(request, tree, options);
      ASSERT_TRUE(plan.ok()) << plan.status().text();
      EXPECT_EQ(asked, 0);
      for (const Candidate& candidate : plan->candidates) {
        EXPECT_EQ(candidate.predicted_ns, plain_ns(tree, request, options.cost, candidate))
            << name(request.collective) << " " << candidate.algorithm;
        otherwise +=
            candidate.predicted_ns !=
            predicted_ns(request, tree, counting, candidate.algorithm, candidate.parameters);
      }
    }
  }
  EXPECT_GT(otherwise, 0);
}

TEST(SharedCores, TheSwitchIsOnUnlessSomebodySaysOtherwise) {
  Request barrier;
  barrier.collective = Collective::barrier;
  PlanOptions options;
  options.algorithm = "asked";
  asked = 0;
  const uint64_t counted_ns = make_plan(barrier, four_ranks(), options)->predicted_ns;
  EXPECT_EQ(asked, 1);
  options.cost.shared_cores.counted = false;
  const uint64_t plain_ns = make_plan(barrier, four_ranks(), options)->predicted_ns;
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(counted_ns, plain_ns + 100'000);
}

// Nothing is known of bursts or cores, and the algorithm says nothing of ways: nothing is added.
TEST(SharedCores, LeaveThePlainModelWhereNothingTellsOfThem) {
  const TierTree tree = four_ranks();
  const Request request;
  const CostModel cost;
  const Setting setting(tree, request, cost);
  const Algorithm* const ring = find_algorithm("ring");  // which says nothing
  const Estimate estimate = ring->estimate(tree, request, {}, cost);
  const Pipeline plain(setting, estimate);
  Pipeline shared = plain;
  share_cores(setting, *ring, {}, estimate, &shared);
  for (const uint32_t chunks : {1u, 2u, 64u}) EXPECT_EQ(shared.ns(chunks), plain.ns(chunks));
}

TEST(SharedCores, AllMessagesTakeTheirTurnOnTheCores) {
  const TierTree tree = four_ranks();
  const Request request;
  CostModel cost;
  cost.shared_cores = {.message_cpu_ns = 10'000, .crowding_permille = 2'000};
  const Setting setting(tree, request, cost);
  const Algorithm* const algorithm = find_algorithm("asked");
  const Estimate estimate = algorithm->estimate(tree, request, {}, cost);
  Pipeline pipeline(setting, estimate);
  share_cores(setting, *algorithm, {}, estimate, &pipeline);
  EXPECT_EQ(pipeline.posting_ns, 12u * 10'000 * 2 / 4);
}

}  // namespace
}  // namespace sennit
