// pipeline_test.cpp: the planner's plain model: latency, posting and pipelined tiers.
#include "plan/pipeline.hpp"

#include <gtest/gtest.h>

namespace sennit {
namespace {

Estimate two_tiers() {
  Estimate estimate;
  estimate.tier_ns = {40'000, 100'000, 0};
  estimate.latency_ns = 7'000;
  estimate.messages = 3;
  return estimate;
}

TEST(Pipeline, ChunksPassTheTiersOneBehindTheOther) {
  const TierTree tree = TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000});
  const Request request;
  CostModel cost;
  cost.post_ns = 1'000;
  const Setting setting(tree, request, cost);
  const Pipeline pipeline(setting, two_tiers());
  EXPECT_EQ(pipeline.ns(1), 7'000u + 3'000 + 140'000);
  EXPECT_EQ(pipeline.ns(4), 7'000u + 4 * 3'000 + 140'000 / 4 + 100'000 - 100'000 / 4);
}

TEST(Pipeline, ReductionsAreOneMoreTier) {
  const TierTree tree = TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000});
  const Request request;
  CostModel cost;
  cost.post_ns = 0;
  cost.reduce_bytes_per_s = 1'000'000'000;
  Estimate estimate = two_tiers();
  estimate.reduce_bytes = 200'000;
  const Pipeline pipeline(Setting(tree, request, cost), estimate);
  EXPECT_EQ(pipeline.ns(1), 7'000u + 340'000);
  EXPECT_EQ(pipeline.ns(2), 7'000u + 340'000 / 2 + 200'000 / 2);
}

}  // namespace
}  // namespace sennit
