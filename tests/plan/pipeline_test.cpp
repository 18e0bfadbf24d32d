// pipeline_test.cpp: the planner's plain model: latency, posting and pipelined tiers; and which
// numbers of chunks it compares.
// ctest not-under-tsan: it has one thread
#include "plan/pipeline.hpp"

#include <gtest/gtest.h>

#include "collectives/algorithm.hpp"

namespace sennit {
namespace {

Estimate two_tiers() {
  Estimate estimate;
  estimate.tier_ns = {40'000, 100'000, 0};
  estimate.latency_ns = 7'000;
  estimate.messages = 3;
  return estimate;
}

TierTree two_by_two() { return TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000}); }

Pipeline on_two_by_two(uint64_t post_ns, const Estimate& estimate) {
  const TierTree tree = two_by_two();
  const Request request;
  CostModel cost;
  cost.post_ns = post_ns;
  return Pipeline(Setting(tree, request, cost), estimate);
}

Request request_of(Collective collective, uint64_t bytes) {
  Request request;
  request.collective = collective;
  request.count = bytes / 4;
  return request;
}

TEST(Pipeline, ChunksPassTheTiersOneBehindTheOther) {
  const Pipeline pipeline = on_two_by_two(0, two_tiers());
  EXPECT_EQ(pipeline.ns(1), 7'000u + 140'000);
  EXPECT_EQ(pipeline.ns(4), 7'000u + 140'000 / 4 + 100'000 - 100'000 / 4);
}

TEST(Pipeline, WhatGoesStraightCrossesAllTiersAtOnce) {
  Estimate straight = two_tiers();
  straight.at_once = true;
  const Pipeline pipeline = on_two_by_two(0, straight);
  EXPECT_EQ(pipeline.ns(1), 7'000u + 100'000);
  EXPECT_EQ(pipeline.ns(4), 7'000u + 100'000);
}

// Of the chunks behind the first the longer counts: what they move, or what a processor does for
// them, which reduces and posts.
TEST(Pipeline, ReductionsAreTheWorkOfWhoPosts) {
  const TierTree tree = two_by_two();
  const Request request;
  CostModel cost;
  cost.post_ns = 0;
  cost.reduce_bytes_per_s = 1'000'000'000;
  Estimate estimate = two_tiers();
  estimate.reduce_bytes = 200'000;
  Pipeline pipeline(Setting(tree, request, cost), estimate);
  EXPECT_EQ(pipeline.ns(1), 7'000u + 340'000);
  EXPECT_EQ(pipeline.ns(2), 7'000u + 340'000 / 2 + 200'000 / 2 + 50'000 / 8 / 8);
  pipeline.others_reduction_ns = 60'000;
  EXPECT_EQ(pipeline.ns(2), 7'000u + 400'000 / 2 + 200'000 / 2 + 50'000 / 8 / 8);
  pipeline.others_reduction_ns = 0;
  pipeline.posting_ns = 900'000;
  EXPECT_EQ(pipeline.ns(2), 7'000u + 900'000 + 340'000 / 2 + 200'000 / 2 + 900'000 +
                                50'000 * 50 / 1000 * 50 / 1000 * 50 / 1000 / 8);
}

TEST(Pipeline, WhatIsPostedBehindTheFirstMessageHidesBehindIt) {
  Estimate estimate = two_tiers();
  const Pipeline waits = on_two_by_two(1'000, estimate);
  estimate.posted_at_once = true;
  const Pipeline at_once = on_two_by_two(1'000, estimate);
  EXPECT_EQ(estimate.messages, 3u);
  EXPECT_EQ(waits.ns(1) - at_once.ns(1), 3'000u * 667 / 1000);
}

// The first chunk's messages are before anything moves; the others' are posted while the slowest
// tier works. Of the shorter of the two an eighth counts, times the cube of its part of the longer.
TEST(Pipeline, PostingHidesBehindTheSlowestTierMoreTheShorterItIs) {
  const Pipeline pipeline = on_two_by_two(1'000, two_tiers());
  EXPECT_EQ(pipeline.ns(1), 7'000u + 3'000 + 140'000);
  EXPECT_EQ(pipeline.ns(4), 7'000u + 3'000 + 140'000 / 4 + 75'000 +
                                9'000 * 120 / 1000 * 120 / 1000 * 120 / 1000 / 8);
  Pipeline posting = pipeline;
  posting.posting_ns = 50'000;
  EXPECT_EQ(posting.ns(4), 7'000u + 50'000 + 140'000 / 4 + 150'000 + 75'000 / 8 / 8);
}

TEST(Pipeline, WithinAHostPostingIsAddedAndWhereRatesAreUnknownItCountsOnce) {
  TierTree host = TierTree::uniform({4}, {1'000'000'000});
  host.tiers[1].name = "host";
  const TierTree unknown = TierTree::uniform({2, 2});
  const Request request;
  CostModel cost;
  cost.post_ns = cost.shared_memory_post_ns = 1'000;
  Estimate one_tier = two_tiers();
  one_tier.tier_ns = {100'000, 0};
  const Pipeline on_host(Setting(host, request, cost), one_tier);
  EXPECT_EQ(on_host.ns(4), 7'000u + 4 * 3'000 + 100'000);
  const Pipeline on_unknown(Setting(unknown, request, cost), two_tiers());
  EXPECT_EQ(on_unknown.ns(4), 7'000u + 3'000 + 140'000 / 4 + 75'000);
}

TEST(Pipeline, EveryChunkHasHeaders) {
  Estimate with_headers = two_tiers();
  with_headers.tier_ns[0] += 100;
  with_headers.tier_ns[1] += 500;
  with_headers.headers_ns = {100, 500, 0};
  const Pipeline pipeline = on_two_by_two(0, with_headers);
  EXPECT_EQ(pipeline.ns(1), 7'000u + 140'600);
  EXPECT_EQ(pipeline.ns(4), 7'000u + 140'600 / 4 + 100'500 - 100'500 / 4 + 3 * 500);
}

// Eight chunks are under way at a time. A broadcast's root is done with a chunk long before the
// last rank has it, so it goes on.
TEST(Pipeline, ChunksThatEndTogetherWaitForALane) {
  const TierTree tree = two_by_two();
  CostModel cost;
  cost.post_ns = 0;
  Estimate far = two_tiers();
  far.latency_ns = 40'000;
  const auto ns = [&](Collective collective, uint32_t chunks) {
    const Request request = request_of(collective, 1 << 20);
    return Pipeline(Setting(tree, request, cost), far).ns(chunks);
  };
  EXPECT_EQ(ns(Collective::all_reduce, 8), ns(Collective::broadcast, 8));
  EXPECT_EQ(ns(Collective::all_reduce, 64), (64 * 40'000u + 140'000) / 8);
  EXPECT_EQ(ns(Collective::broadcast, 64), 40'000u + 140'000 / 64 + 100'000 - 100'000 / 64);
}

TEST(Pipeline, ChunksAreComparedInStepsOfTheRootOfTwo) {
  const Algorithm& tiered = *find_algorithm("tiered");
  const auto counts = [&](uint64_t bytes, uint64_t least = kLeastChunkBytes) {
    return chunk_counts(tiered, request_of(Collective::all_reduce, bytes), two_by_two(), least);
  };
  using Counts = std::vector<uint32_t>;
  EXPECT_EQ(counts(8), Counts({1}));
  EXPECT_EQ(counts((32 << 10) - 4), Counts({1}));
  EXPECT_EQ(counts(32 << 10), Counts({1, 2}));
  EXPECT_EQ(counts(1 << 20), Counts({1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64}));
  EXPECT_EQ(counts(32 << 10, kLeastSearchedBytes), Counts({1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(counts(64 << 20).back(), 256u);
  EXPECT_EQ(counts(1 << 30), Counts({1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(chunk_counts(tiered, request_of(Collective::all_reduce, 1 << 20),
                         TierTree::uniform({32, 64}), kLeastChunkBytes),
            Counts({1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64}));
  EXPECT_EQ(chunks_of(tiered, request_of(Collective::all_reduce, 1 << 20), 4, 100'000),
            Counts({11}));
  EXPECT_EQ(chunks_of(*find_algorithm("direct"), request_of(Collective::all_to_all, 1 << 20), 4, 1),
            Counts({1}));
}

}  // namespace
}  // namespace sennit
