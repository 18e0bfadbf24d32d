// algorithm_test.cpp: an algorithm that is one file (tests/toys/algorithm.cpp) is planned,
// simulated and carries a job. This program also runs the conformance suite
// (tests/collectives/collectives_test.cpp), which finds the toy by itself.
//
// ctest compiles: tests/toys/algorithm.cpp tests/collectives/collectives_test.cpp
// ctest variable: GTEST_FILTER=*toy*:Toy*
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/planner.hpp"
#include "sennit/sennit.h"
#include "simulate/simulate.hpp"
#include "tests/support/ranks.hpp"

namespace sennit {
namespace {

constexpr int kRanks = 4;
constexpr size_t kCount = 100'000;

Request all_reduce() {
  Request request;
  request.collective = Collective::all_reduce;
  request.count = kCount;
  return request;
}

TEST(ToyAlgorithm, IsComparedWithTheOthersAndTakenWhereItIsNamed) {
  const TierTree tree = TierTree::uniform({kRanks}, {1'000'000'000});
  const Result<Plan> free = make_plan(all_reduce(), tree, {});
  ASSERT_TRUE(free.ok()) << free.status().text();
  EXPECT_EQ(std::ranges::count(free->candidates, "toy", &Candidate::algorithm), 1);
  PlanOptions options;
  options.algorithm = "toy";
  const Result<Plan> named = make_plan(all_reduce(), tree, options);
  ASSERT_TRUE(named.ok()) << named.status().text();
  EXPECT_EQ(named->algorithm, "toy");
  EXPECT_GE(named->predicted_ns, named->bound.time_ns);
}

TEST(ToyAlgorithm, IsSimulated) {
  const TierTree tree = TierTree::uniform({kRanks}, {1'000'000'000});
  Plan plan;
  plan.algorithm = "toy";
  const Result<SimulatedTime> time = simulate(tree, all_reduce(), plan, {});
  ASSERT_TRUE(time.ok()) << time.status().text();
  EXPECT_EQ(time->messages, 2u * (kRanks - 1));
  // Three vectors go out of the centre, one after the other.
  EXPECT_GE(time->time_ns, (kRanks - 1) * kCount * sizeof(float));
}

TEST(ToyAlgorithm, CarriesAJob) {
  sennit_config_t config = SENNIT_CONFIG_INIT;
  config.algorithm = "toy";
  sennit_test::Ranks ranks(kRanks, &config);
  ASSERT_TRUE(ranks.ok());
  ranks.run([](int rank, sennit_comm_t comm) {
    std::vector<int32_t> numbers(kCount, rank + 1);
    EXPECT_EQ(
        sennit_all_reduce(numbers.data(), numbers.data(), kCount, SENNIT_INT32, SENNIT_SUM, comm),
        SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(numbers, std::vector<int32_t>(kCount, 1 + 2 + 3 + 4));
  });
}

}  // namespace
}  // namespace sennit
