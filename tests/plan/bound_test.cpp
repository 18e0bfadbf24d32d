// Lower bounds against figures worked out by hand: the reference cluster, the emulated fabric,
// unequal racks.
//
// ctest not-under-tsan: it has one thread
#include <random>

#include <gtest/gtest.h>

#include "plan/planner.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

constexpr uint64_t kGB = 1'000'000'000;
constexpr uint64_t kGiB = 1ull << 30;

Bound bound(Collective collective, uint64_t count, const TierTree& tree, int root = 0) {
  Request request;
  request.collective = collective;
  request.type = DataType::uint8;
  request.count = count;
  request.root = root;
  return lower_bound(request, tree);
}

// 8 pods x 192 racks x 2 hosts x 8 GPUs: see the table in the facts on bounds.
TierTree meta24k() {
  return TierTree::uniform({8, 192, 2, 8}, {21'943 * kGB, 800 * kGB, 400 * kGB, 500 * kGB});
}
double milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

TEST(Bound, ReferenceCluster) {
  const TierTree tree = meta24k();
  const uint64_t n = 24'576;
  const auto expect = [&](const Bound& b, std::vector<double> by_tier, int binding) {
    ASSERT_TRUE(b.known) << b.why;
    ASSERT_EQ(b.tier_ns.size(), 5u);
    for (size_t t = 0; t < 4; t++)
      EXPECT_NEAR(milliseconds(b.tier_ns[t]), by_tier[t], 0.004 * by_tier[t] + 5e-4) << t;
    EXPECT_EQ(b.binding_tier, binding) << b.why;
    EXPECT_EQ(b.time_ns, b.tier_ns[size_t(binding)]);
  };
  expect(bound(Collective::all_reduce, kGiB, tree), {4.295, 5.367, 2.683, 0.086}, 1);
  expect(bound(Collective::all_gather, kGiB / n, tree), {2.147, 2.684, 1.341, 0.043}, 1);
  expect(bound(Collective::reduce_scatter, kGiB / n, tree), {2.147, 2.684, 1.341, 0.043}, 1);
  expect(bound(Collective::broadcast, kGiB, tree), {2.147, 2.684, 1.342, 0.049}, 1);
  expect(bound(Collective::all_to_all, kGiB / (n - 1), tree), {2.147, 21.46, 21.46, 131.5}, 3);
}

TEST(Bound,
     // 2 racks x 4 hosts, 400 Mbit/s per host, 229 Mbit/s per rack, 16,000,000 bytes
     EmulatedFabric) {
  const TierTree tree = TierTree::uniform({2, 4}, {28'625'000, 50'000'000});
  const uint64_t m = 16'000'000;
  EXPECT_EQ(bound(Collective::all_reduce, m, tree).time_ns, 560'000'000u);
  EXPECT_EQ(bound(Collective::all_reduce, m, tree).binding_tier, 0);
  EXPECT_EQ(bound(Collective::all_gather, m / 8, tree).time_ns, 280'000'000u);
  EXPECT_EQ(bound(Collective::broadcast, m, tree, 3).time_ns, 558'951'966u);
  EXPECT_EQ(bound(Collective::broadcast, m, tree, 3).binding_tier, 1);
  EXPECT_EQ(bound(Collective::reduce, m, tree, 5).time_ns, 558'951'966u);
  EXPECT_NEAR(milliseconds(bound(Collective::all_to_all, m / 8, tree).time_ns), 1118, 1);
  // gather: the root's rack takes in half of everything, the root's host all but its own block
  EXPECT_EQ(bound(Collective::gather, m / 8, tree, 1).time_ns, 280'000'000u);
  EXPECT_EQ(bound(Collective::scatter, m / 8, tree, 1).time_ns, 280'000'000u);
}

// Racks of 1, 2, 3 and 2 hosts of 400 Mbit/s, 5:1. The rack of one host is that host, with its
// rack's rate.
TierTree unequal_racks() {
  TierTree tree;
  tree.tiers = {{"rank"}, {"rack"}, {"root"}};
  const int hosts[] = {1, 2, 3, 2};
  tree.groups.resize(1);
  tree.groups[0].tier = 2;
  tree.groups[0].first_child = 1;
  tree.groups[0].children = 4;
  for (int i = 0; i < 4; i++) {
    Group g;
    g.tier = hosts[i] == 1 ? 0 : 1;
    g.egress = g.ingress = {uint64_t(hosts[i]) * 10'000'000, Provenance::declared};
    tree.groups.push_back(g);
  }
  for (size_t i = 1; i <= 4; i++) {
    if (hosts[i - 1] == 1) continue;
    tree.groups[i].first_child = int32_t(tree.groups.size());
    tree.groups[i].children = hosts[i - 1];
    for (int h = 0; h < hosts[i - 1]; h++) {
      Group g;
      g.egress = g.ingress = {50'000'000, Provenance::declared};
      tree.groups.push_back(g);
    }
  }
  tree.finish();
  return tree;
}

TEST(Bound, UnequalGroups) {
  const TierTree tree = unequal_racks();
  ASSERT_EQ(tree.check(), "");
  const Bound b = bound(Collective::all_reduce, 16'000'000, tree);
  // the single host: M / 10 MB/s; all racks together give 1.2 s
  EXPECT_EQ(b.time_ns, 1'600'000'000u);
  EXPECT_EQ(b.binding_group, 1) << b.why;
  EXPECT_EQ(b.tier_ns[1], 1'200'000'000u);
  // all-gather: the single host takes in 7/8 of everything through 10 MB/s
  EXPECT_EQ(bound(Collective::all_gather, 2'000'000, tree).time_ns, 1'400'000'000u);
  // all-to-all: the rack of three sends 3 * 5 blocks through 30 MB/s, the single host 7 through 10
  // MB/s, the racks of two 2 * 6 through 20 MB/s
  EXPECT_EQ(bound(Collective::all_to_all, 1'000'000, tree).time_ns, 700'000'000u);
}

TEST(Bound, CountsByRank) {
  const TierTree tree = TierTree::uniform({2, 2}, {10'000'000, 50'000'000});
  Request request;
  request.type = DataType::float32;
  request.counts = {1'000'000, 0, 0, 250'000};
  request.collective = Collective::all_gather;
  const Bound b = lower_bound(request, tree);
  EXPECT_EQ(b.time_ns, 400'000'000u);  // 4 MB out of the first rack and into the second
  EXPECT_EQ(b.binding_tier, 1);
  request.collective = Collective::scatter;
  request.root = 2;  // only the first rack's blocks cross
  EXPECT_EQ(lower_bound(request, tree).time_ns, 400'000'000u);
  request.root = 0;  // 1 MB crosses: 100 ms
  EXPECT_EQ(lower_bound(request, tree).time_ns, 100'000'000u);
  request.collective = Collective::all_to_all;
  request.vector_variant = true;
  EXPECT_FALSE(lower_bound(request, tree).known);
}

TEST(Bound, UnknownWithoutEveryCapacityBetweenHosts) {
  EXPECT_FALSE(bound(Collective::all_reduce, 1000, TierTree::flat(4)).known);
  TierTree tree = TierTree::uniform({2, 4}, {28'625'000, 50'000'000});
  tree.groups[2].egress = {};
  Bound b = bound(Collective::all_reduce, 1000, tree);
  EXPECT_FALSE(b.known);
  EXPECT_EQ(b.binding_tier, -1);
  EXPECT_NE(b.why.find("egress is unknown"), std::string::npos) << b.why;
  // not needed: a broadcast from the first rack enters the second and does not leave it
  EXPECT_TRUE(bound(Collective::broadcast, 1000, tree).known);
  tree.groups[2].egress = {28'625'000, Provenance::assumed};
  b = bound(Collective::all_reduce, 1000, tree);
  EXPECT_FALSE(b.known);
  EXPECT_NE(b.why.find("egress is assumed"), std::string::npos) << b.why;
}

TEST(Bound, InsideOfHostsIsNotNeeded) {  // two ranks on each of two hosts, nothing known within
  TierTree tree = TierTree::uniform({2, 2}, {50'000'000, 0});
  tree.tiers[1].name = "host";
  const Bound b = bound(Collective::all_reduce, 1'000'000, tree);
  ASSERT_TRUE(b.known) << b.why;
  EXPECT_EQ(b.time_ns, 20'000'000u);
  EXPECT_EQ(b.binding_tier, 1);
  tree.tiers[1].name = "rack";
  EXPECT_FALSE(bound(Collective::all_reduce, 1'000'000, tree).known);
}

TEST(Bound, LatencyBindsSmallMessages) {
  TierTree tree = TierTree::uniform({2, 4}, {28'625'000, 50'000'000});
  EXPECT_FALSE(bound(Collective::barrier, 0, tree).known);
  tree.groups[0].latency_ns = 30'000;
  EXPECT_EQ(bound(Collective::barrier, 0, tree).time_ns, 30'000u);
  EXPECT_EQ(bound(Collective::all_reduce, 8, tree).time_ns, 30'000u);
  EXPECT_GT(bound(Collective::all_reduce, 1'000'000, tree).time_ns, 30'000'000u);
  EXPECT_FALSE(bound(Collective::all_reduce, 0, tree).known);
}

TEST(Bound, DirectionsAreKeptApart) {
  TierTree tree = TierTree::uniform({2, 2}, {40'000'000, 50'000'000});
  tree.groups[1].ingress = {10'000'000, Provenance::measured};
  const Bound in = bound(Collective::broadcast, 1'000'000, tree, 3);
  EXPECT_EQ(in.time_ns, 100'000'000u);
  EXPECT_EQ(in.binding_group, 1);
  EXPECT_EQ(bound(Collective::broadcast, 1'000'000, tree, 0).time_ns, 25'000'000u);
}

// Against all partitions, tried one by one: a mixture of tiers may bind more than any single tier.
TEST(Bound, AnyPartitionOfAllRanks) {
  std::mt19937 random(sennit_test::seed());
  for (int round = 0; round < 200; round++) {
    TierTree tree = TierTree::uniform({2 + int(random() % 3), 2 + int(random() % 2)}, {100, 100});
    for (size_t g = 1; g < tree.groups.size(); g++)
      tree.groups[g].egress =
          tree.groups[g].ingress = {1'000'000 + random() % 30'000'000, Provenance::declared};
    const uint64_t m = 1'000'000;
    const int pods = tree.groups[0].children;
    double expected = 0;
    for (size_t g = 1; g < tree.groups.size(); g++)
      expected = std::max(expected, double(m) / double(tree.groups[g].egress.bytes_per_s));
    for (int split = 0; split < (1 << pods); split++) {  // which pods are split into their ranks
      double sum = 0;
      int n = 0;
      for (int p = 0; p < pods; p++) {
        const Group& pod = tree.groups[size_t(1 + p)];
        if ((split >> p & 1) == 0) {
          sum += double(pod.egress.bytes_per_s);
          n++;
        }
        for (int c = 0; c < pod.children && (split >> p & 1) != 0; c++, n++)
          sum += double(tree.groups[size_t(pod.first_child + c)].egress.bytes_per_s);
      }
      expected = std::max(expected, 2.0 * (n - 1) * double(m) / sum);
    }
    EXPECT_NEAR(double(bound(Collective::all_reduce, m, tree).time_ns), expected * 1e9, 2) << round;
  }
}

}  // namespace
}  // namespace sennit
