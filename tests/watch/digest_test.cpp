// digest_test.cpp: digests come back as they were, the largest in part; what is none is refused,
// whatever bytes it has.
// ctest not-under-tsan: it has one thread
#include "watch/digest.hpp"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"

namespace sennit::watch {
namespace {

Digest sample(size_t plans, int edges) {
  Digest digest;
  digest.span_ns = 1'000'000'000;
  digest.without_core_ns = 20'000'000;
  digest.cores_between = 0.75;
  digest.paces = {{1, 7, 20'000, 150'000'000}, {9, 3, 0, 1}};
  for (size_t p = 0; p < plans; p++) {
    DigestPlan plan;
    plan.comm = 1;
    plan.plan = 0x123456789abcdef0 + p;
    plan.first = 40;
    plan.last = 46;
    plan.calls = 7;
    plan.in_calls_ns = 900'000'000;
    plan.alone = 6;
    plan.alone_ns = 800'000'000;
    plan.quickest_ns = 90'000'000;
    plan.tier_bytes = {0, 1000 * (plans - p), 2000, 3};
    for (int e = 0; e < edges; e++)
      plan.edges.push_back({e, 64 * uint64_t(1000 - e), 1000 * uint64_t(e)});
    digest.plans.push_back(plan);
  }
  return digest;
}

TEST(Digest, ComesBackAsItWas) {
  for (const Digest& digest : {Digest{}, sample(1, 0), sample(1, 7), sample(3, 12)}) {
    const Result<Digest> read = decode_digest(encode(digest));
    ASSERT_TRUE(read.ok()) << read.status().text();
    EXPECT_EQ(*read, digest);
  }
}

TEST(Digest, EdgesAreRounded) {
  Digest digest = sample(1, 3);
  digest.plans[0].edges = {
      {1, 95, 1'499}, {2, 96, 1'500}, {3, uint64_t{1} << 60, uint64_t{1} << 60}};
  const Result<Digest> read = decode_digest(encode(digest));
  ASSERT_TRUE(read.ok()) << read.status().text();
  const std::vector<DigestEdge>& edges = read->plans[0].edges;
  const DigestEdge most{3, 64 * uint64_t{UINT32_MAX}, 1000 * uint64_t{UINT32_MAX}};
  EXPECT_EQ(edges, (std::vector<DigestEdge>{most, {2, 128, 2'000}, {1, 64, 1'000}}));
}

TEST(Digest, OfTheLargestWhatMovedMostIsTold) {
  const Digest digest = sample(40, 1000);
  const std::vector<std::byte> bytes = encode(digest);
  EXPECT_LE(bytes.size(), kMostDigestBytes);
  const Result<Digest> read = decode_digest(bytes);
  ASSERT_TRUE(read.ok()) << read.status().text();
  ASSERT_FALSE(read->plans.empty());
  EXPECT_EQ(read->plans[0].plan, digest.plans[0].plan);
  EXPECT_GT(read->plans[0].edges.size(), 50u);
  EXPECT_EQ(read->plans[0].edges[0], digest.plans[0].edges[0]);
}

TEST(Digest, WhatIsCutOffOrNoDigestIsRefused) {
  const std::vector<std::byte> whole = encode(sample(2, 5));
  for (size_t length = 0; length < whole.size(); length++)
    EXPECT_FALSE(decode_digest({whole.data(), length}).ok()) << length;
  std::mt19937_64 random(sennit_test::seed());
  constexpr int kTrials = 20'000;
  for (int trial = 0; trial < kTrials; trial++) {
    std::vector<std::byte> bytes = whole;
    for (int change = 0; change < 3; change++)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (const Result<Digest> read = decode_digest(bytes)) {
      for (const DigestPlan& plan : read->plans) EXPECT_LE(plan.alone, plan.calls);
    }
    std::vector<std::byte> noise(random() % 200);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    (void)decode_digest(noise).ok();
  }
}

}  // namespace
}  // namespace sennit::watch
