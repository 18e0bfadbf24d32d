// tier_tree_test.cpp: the tier tree's look-ups against their definitions, and check() against
// broken trees.
//
// ctest not-under-tsan: it has one thread
#include "topology/fabric/tier_tree.hpp"

#include <set>

#include <gtest/gtest.h>

#include "topology/fabric/units.hpp"

namespace sennit {
namespace {

// Every look-up against its definition, by brute force over all groups and pairs.
void expect_consistent(const TierTree& tree) {
  ASSERT_EQ(tree.check(), "");
  const auto at = [&](int group) -> const Group& {
    return tree.groups[static_cast<size_t>(group)];
  };
  const auto holds = [&](int group, int position) {
    return position >= at(group).first && position < at(group).first + at(group).size;
  };
  const int groups = static_cast<int>(tree.groups.size());
  for (int a = 0; a < tree.ranks(); a++) {
    for (int b = 0; b < tree.ranks(); b++) {
      int smallest = 0;
      for (int g = 0; g < groups; g++)
        if (holds(g, a) && holds(g, b) && at(g).size < at(smallest).size) smallest = g;
      ASSERT_EQ(tree.common_group(a, b), smallest);
      int tier = 0;
      for (int g = 1; g < groups; g++)
        if (a != b && at(g).parent == smallest && (holds(g, a) || holds(g, b)))
          tier = std::max<int>(tier, at(g).tier);
      ASSERT_EQ(tree.crossing_tier(a, b), tier);
    }
    for (int g = 0; g < groups; g++) {
      if (tree.is_leaf(g) || !holds(g, a)) continue;
      const int child = tree.child_at(g, a);
      ASSERT_TRUE(holds(child, a));
      ASSERT_EQ(at(child).parent, g);
    }
  }
}

TEST(TierTree, UniformTreesAreConsistent) {
  const std::vector<std::vector<int>> shapes = {
      {1}, {2}, {7}, {2, 4}, {3, 3}, {2, 3, 4}, {1, 4}, {4, 1}, {2, 1, 3, 1}, {2, 2, 2, 2, 2}};
  for (const std::vector<int>& fanouts : shapes) {
    const TierTree tree = TierTree::uniform(fanouts);
    expect_consistent(tree);
    int ranks = 1;
    for (const int fanout : fanouts) ranks *= fanout;
    EXPECT_EQ(tree.ranks(), ranks);
  }
  expect_consistent(TierTree::flat(1));
  expect_consistent(TierTree::flat(5));
}

TEST(TierTree, TwoRacksOfFour) {
  const TierTree tree = TierTree::uniform({2, 4}, {28'625'000, 50'000'000});
  EXPECT_EQ(tree.crossing_tier(0, 3), 0);
  EXPECT_EQ(tree.crossing_tier(3, 4), 1);
  EXPECT_NEAR(tree.oversubscription(1), 6.99, 0.01);
  EXPECT_EQ(tree.oversubscription(0), 0);
  EXPECT_TRUE(tree.capacities_known());
  EXPECT_FALSE(TierTree::flat(3).capacities_known());
  EXPECT_EQ(tree.to_text(),
            "8 ranks\n"
            "root: 8 ranks\n"
            "  tier1: 4 ranks, 229Mbit/s declared, 6.99:1\n"
            "    rank 0, 400Mbit/s declared\n"
            "    rank 1, 400Mbit/s declared\n"
            "    rank 2, 400Mbit/s declared\n"
            "    rank 3, 400Mbit/s declared\n"
            "  tier1: 4 ranks, 229Mbit/s declared, 6.99:1\n"
            "    rank 4, 400Mbit/s declared\n"
            "    rank 5, 400Mbit/s declared\n"
            "    rank 6, 400Mbit/s declared\n"
            "    rank 7, 400Mbit/s declared\n");
}

TEST(TierTree, SingleChildLevelsKeepTheSmallerCapacity) {
  const TierTree tree = TierTree::uniform({2, 1, 2}, {700, 300, 500});
  ASSERT_EQ(tree.groups.size(), 7u);
  EXPECT_EQ(tree.groups[1].egress.bytes_per_s, 300u);
  EXPECT_EQ(tree.groups[3].egress.bytes_per_s, 500u);
}

TEST(TierTree, LeavesAtDifferentDepths) {
  TierTree tree;  // root: rank 2, host {rank 0, rank 1}
  tree.tiers = {{"rank"}, {"host"}, {"root"}};
  tree.groups.resize(5);
  tree.groups[0].tier = 2;
  tree.groups[0].first_child = 1;
  tree.groups[0].children = 2;
  tree.groups[2].tier = 1;
  tree.groups[2].first_child = 3;
  tree.groups[2].children = 2;
  tree.rank_of_position = {2, 0, 1};
  tree.finish();
  expect_consistent(tree);
  EXPECT_EQ(tree.position_of_rank, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(tree.crossing_tier(0, 1), 1);
  EXPECT_EQ(tree.crossing_tier(1, 2), 0);
}

TEST(TierTree, FingerprintIsOfShapeAndFigures) {
  const TierTree tree = TierTree::uniform({2, 4}, {100, 200});
  TierTree renamed = tree;
  renamed.groups[1].name = "left";
  std::swap(renamed.rank_of_position[0], renamed.rank_of_position[5]);
  renamed.finish();
  EXPECT_EQ(renamed.fingerprint(), tree.fingerprint());
  std::set<uint64_t> seen = {tree.fingerprint()};
  EXPECT_TRUE(seen.insert(TierTree::uniform({4, 2}, {100, 200}).fingerprint()).second);
  EXPECT_TRUE(seen.insert(TierTree::uniform({2, 4}, {200, 100}).fingerprint()).second);
  EXPECT_TRUE(seen.insert(TierTree::uniform({2, 4}).fingerprint()).second);
  EXPECT_TRUE(seen.insert(TierTree::uniform({8}).fingerprint()).second);
  TierTree late = tree;
  late.groups[0].latency_ns = 1;
  EXPECT_TRUE(seen.insert(late.fingerprint()).second);
  TierTree planes = tree;
  planes.groups[3].planes = 2;
  EXPECT_TRUE(seen.insert(planes.fingerprint()).second);
}

TEST(TierTree, CheckNamesWhatIsWrong) {
  const auto broken = [](auto&& change) {
    TierTree tree = TierTree::uniform({2, 2}, {100, 200});
    change(tree);
    return tree.check();
  };
  EXPECT_EQ(broken([](TierTree& t) { t.groups.clear(); }), "no groups");
  EXPECT_EQ(broken([](TierTree& t) { t.groups[0].children = 9; }),
            "group 0: children beyond the last group");
  EXPECT_EQ(broken([](TierTree& t) { t.groups[2].first_child = 3; }),
            "group 2: children begin at 3, not 5");
  EXPECT_EQ(broken([](TierTree& t) { t.groups[1].tier = 2; }), "group 1: tier 2 within tier 2");
  EXPECT_EQ(broken([](TierTree& t) { t.groups[1].first = 1; }),
            "group 1: positions 1 + 2, not from 0");
  EXPECT_EQ(broken([](TierTree& t) { t.groups[4].parent = 2; }), "group 4: parent 2, not 1");
  EXPECT_EQ(broken([](TierTree& t) { t.groups[1].egress.bytes_per_s = 0; }),
            "group 1: a capacity of 0 bytes/s with provenance declared");
  EXPECT_EQ(broken([](TierTree& t) {
              t.groups[0].egress = {1, Provenance::declared};
            }),
            "the root has a capacity");
  EXPECT_EQ(broken([](TierTree& t) { t.groups[3].planes = 0; }), "group 3: no planes");
  EXPECT_EQ(broken([](TierTree& t) { t.rank_of_position[1] = 0; }),
            "position 1: rank 0, which is not at that position");
  EXPECT_EQ(broken([](TierTree& t) { t.leaf_of_position[1] = 3; }),
            "position 1: leaf 3, which is not its leaf");
  EXPECT_EQ(broken([](TierTree& t) {
              t.home_plane = {0, 1};
            }),
            "4 ranks, but tables of 4, 4, 4 and 2");
}

TEST(Units, RatesReadAndWrite) {
  EXPECT_EQ(parse_rate("400Mbit/s"), 50'000'000u);
  EXPECT_EQ(parse_rate("50GB/s"), 50'000'000'000u);
  EXPECT_EQ(parse_rate("0.5kB/s"), 500u);
  EXPECT_EQ(parse_rate("unknown"), 0u);
  for (const char* bad :
       {"", "400", "Mbit/s", "400 Mbit/s", "400mbit/s", "1.2.3GB/s", "0GB/s", "1bit/s", "0.1B/s",
        "99999999999999999999B/s", "20000000TB/s", "-1GB/s", "1e3GB/s", ".GB/s"})
    EXPECT_EQ(parse_rate(bad), std::nullopt) << bad;
  EXPECT_EQ(format_rate(50'000'000'000), "400Gbit/s");
  EXPECT_EQ(format_rate(28'625'000), "229Mbit/s");
  EXPECT_EQ(format_rate(21'942'857'142'857), "21942857142857B/s");
  EXPECT_EQ(format_rate(0), "unknown");
  for (uint64_t rate = 1; rate < UINT64_MAX / 7; rate = rate * 3 + 1)
    EXPECT_EQ(parse_rate(format_rate(rate)), rate);
  EXPECT_EQ(parse_rate(format_rate(UINT64_MAX)), UINT64_MAX);
}

TEST(Units, TimesReadAndWrite) {
  EXPECT_EQ(parse_time("5us"), 5'000u);
  EXPECT_EQ(parse_time("1.5ms"), 1'500'000u);
  EXPECT_EQ(parse_time("0.5ns"), std::nullopt);
  EXPECT_EQ(parse_time("5"), std::nullopt);
  EXPECT_EQ(format_time(3'400), "3.4us");
  EXPECT_EQ(format_time(0), "0ns");
  for (uint64_t ns = 1; ns < UINT64_MAX / 5; ns = ns * 3 + 1)
    EXPECT_EQ(parse_time(format_time(ns)), ns);
}

}  // namespace
}  // namespace sennit
