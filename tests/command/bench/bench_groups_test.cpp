// bench_groups_test.cpp: how `sennit bench --split` and `--mesh` divide ranks, and what bounds the
// groups that run at once.
//
// ctest not-under-tsan: it has one thread
// ctest links: sennit_commands
#include "command/bench/groups.hpp"

#include <gtest/gtest.h>

namespace sennit::bench {
namespace {

RankGroups split(const std::string& rule, int ranks) {
  Options options;
  options.split = rule;
  const Result<RankGroups> groups = groups_of(options, ranks);
  EXPECT_TRUE(groups.ok()) << groups.status().text();
  return groups.ok() ? *groups : RankGroups{};
}

TEST(BenchGroups, RulesAreThoseOfNcclTests) {
  const RankGroups strided = {{0, 2, 4, 6}, {1, 3, 5, 7}}, halves = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  for (const char* rule : {"MOD 2", "%2", "% 2", "AND 1", "&0x1", "0,1,0,1,0,1,0,1"})
    EXPECT_EQ(split(rule, 8), strided) << rule;
  for (const char* rule : {"DIV 4", "/4", "OR 3", "|0x3", "7,7,7,7,1,1,1,1"})
    EXPECT_EQ(split(rule, 8), halves) << rule;
  EXPECT_EQ(split("", 3), (RankGroups{{0, 1, 2}}));
  EXPECT_EQ(groups_text(strided), "2 groups of 4");
  EXPECT_EQ(groups_text(split("MOD 2", 5)), "2 groups of 2 to 3");
}

TEST(BenchGroups, AMeshNamesItsDimensionsFromTheFastestNetworkOutwards) {
  Options options;
  options.mesh = "tp2,dp4";
  options.dimension = "dp";
  EXPECT_EQ(*groups_of(options, 8), (RankGroups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  options.dimension = "tp";
  EXPECT_EQ(*groups_of(options, 8), (RankGroups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(BenchGroups, WhatIsOffIsNamed) {
  struct Wrong {
    const char *split, *mesh, *dimension;
    int root;
    const char* expected;
  };
  const Wrong all[] = {
      {"MOD", "", "", 0, "--split \"MOD\": expected MOD, DIV, AND or OR and a number"},
      {"XOR 2", "", "", 0, "--split \"XOR 2\": expected"},
      {"MOD -2", "", "", 0, "--split \"MOD -2\": expected"},
      {"MOD 0", "", "", 0, "nothing is divided by 0"},
      {"DIV 0", "", "", 0, "nothing is divided by 0"},
      {"0,1", "", "", 0, "--split \"0,1\": 2 colours for 4 ranks"},
      {"0,,1,1", "", "", 0, "--split \"0,,1,1\": expected"},
      {"MOD 3", "", "", 0, "--split \"MOD 3\": rank 1 is alone in its group"},
      {"MOD 2", "", "", 2, "-r 2: there are 2 ranks in a group"},
      {"MOD 2", "dp4", "dp", 0, "--split and --mesh: give one of them"},
      {"", "dp4", "", 0, "--mesh needs a --dimension"},
      {"", "", "dp", 0, "--dimension needs a --mesh"},
      {"", "dp8", "dp", 0, "--mesh dp8: is of 8 ranks, and there are 4"},
      {"", "xp4", "dp", 0, "--mesh xp4: \"xp4\": expected"},
      {"", "dp4", "ep", 0, "--dimension ep: expected one of the mesh's"},
      {"", "dp4", "tp", 0, "--dimension tp: rank 0 is alone in its group"}};
  for (const Wrong& wrong : all) {
    Options options;
    options.split = wrong.split;
    options.mesh = wrong.mesh;
    options.dimension = wrong.dimension;
    options.root = wrong.root;
    const Status status = groups_of(options, 4).status();
    EXPECT_EQ(status.kind(), SENNIT_INVALID_ARGUMENT) << wrong.expected;
    EXPECT_NE(status.text().find(wrong.expected), std::string::npos) << status.text();
  }
}

// Two racks of two hosts: groups with a member in each rack share the uplinks, those within a rack
// leave them alone.
TEST(BenchGroups, TheBoundIsThatOfAllGroupsTogether) {
  const TierTree tree = TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000});
  Options options;
  const uint64_t bytes = 1 << 20;
  const auto ns = [&](const char* rule) {
    return bound_of(options, split(rule, 4), tree, DataType::float32, Op::sum, 0, bytes).time_ns;
  };
  const uint64_t within = ns("DIV 2"), across = ns("MOD 2");
  EXPECT_NEAR(static_cast<double>(within), 1e9 / 1e9 * bytes, 0.01 * bytes);
  EXPECT_EQ(across, 2 * within);
  // Every group's own root, wherever in the fabric it is.
  options.collective = Collective::broadcast;
  const Bound bound =
      bound_of(options, split("MOD 2", 4), tree, DataType::float32, Op::sum, 1, bytes);
  EXPECT_EQ(bound.time_ns, across);
}

}  // namespace
}  // namespace sennit::bench
