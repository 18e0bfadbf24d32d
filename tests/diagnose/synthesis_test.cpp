// synthesis_test.cpp: of simulated calls in which a boundary was slow it is that boundary that the
// simulator shows them with, and no other one.
// ctest not-under-tsan: it has one thread
#include "diagnose/synthesis.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/index.hpp"
#include "collectives/algorithm.hpp"
#include "plan/planner.hpp"
#include "topology/source.hpp"

namespace sennit::diagnose {
namespace {

class SynthesisTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Fabric fabric = *synthetic_fabric(GetParam());
    tree_ = *contract(fabric, ranks_on_all_hosts(fabric, 1));
    note_.request.collective = Collective::all_reduce;
    note_.request.count = 1 << 20;
    const Plan plan = *make_plan(note_.request, tree_, {});
    note_.algorithm = plan.algorithm;
    note_.parameters = plan.parameters;
    constexpr uint32_t kFewChunks = 8;  // simulated in a moment
    note_.parameters.chunks = std::min(note_.parameters.chunks, kFewChunks);
    blueprint_ = find_algorithm(note_.algorithm)->prepare(tree_, note_.request, note_.parameters);
    ASSERT_NE(blueprint_, nullptr);
    well_ = expected_of(tree_, note_, *blueprint_, 0);
  }
  // What it takes with those slow. `usual`: how much of what is simulated every edge takes.
  TookAndWell took(const std::vector<DirectedGroup>& slow, double factor, double usual = 1) const {
    Slower slower;
    for (const DirectedGroup& one : slow) slower.emplace_back(one, factor);
    const ExpectedPlan plan = expected_of(slowed_down(tree_, slower), note_, *blueprint_, 0);
    TookAndWell of;
    of.took_ns = plan.time_ns;
    for (const auto& [edge, ns] : plan.service_ns)
      of.edges.push_back({edge.first, edge.second, usual * ns, 0});
    return of;
  }
  std::vector<DirectedGroup> boundaries() const {
    std::vector<DirectedGroup> all;
    for (int g = 0; g < static_cast<int>(tree_.groups.size()); g++)
      if (tree_.groups[index(g)].parent >= 0)
        for (const bool egress : {true, false}) all.push_back({g, egress});
    return all;
  }
  TierTree tree_;
  PlanNote note_;
  std::unique_ptr<Blueprint> blueprint_;
  ExpectedPlan well_;
};

TEST_P(SynthesisTest, WhatIsSlowLeavesLeast) {
  constexpr double kFactor = 3, kMost = 10, kNothing = 0.05, kFar = 0.15;
  int told = 0;
  for (const DirectedGroup& slow : boundaries()) {
    const std::string& name = tree_.groups[index(slow.group)].name;
    if (name.starts_with("h") && name != "h0") continue;  // hosts are alike
    const TookAndWell of = took({slow}, kFactor);
    if (of.took_ns < 1.2 * well_.time_ns) continue;  // it costs little, and nobody asks
    const Synthesis synthesis(tree_, note_, *blueprint_, well_, of);
    // However slow it may be at most, and where little is hoped for.
    for (const double most : {kMost, 1.2 * kFactor}) {
      constexpr double kHopeless = 0.15;
      const Likeness like = *synthesis.likeness({slow}, most, kHopeless);
      EXPECT_LT(like.left, kNothing) << slow.group << " " << slow.egress << ", " << most;
      EXPECT_NEAR(like.factor, kFactor, kFactor / 10)
          << slow.group << " " << slow.egress << ", " << most;
    }
    for (const DirectedGroup& other : boundaries()) {
      if (other == slow) continue;
      told++;
      EXPECT_GT(synthesis.likeness({other}, kMost)->left, kFar)
          << slow.group << " " << slow.egress << ", not " << other.group << " " << other.egress;
    }
  }
  EXPECT_GT(told, 0);
}

// Of a tier it is not known how slow it may be.
TEST_P(SynthesisTest, AWholeTier) {
  constexpr double kFactor = 2, kNothing = 0.05;
  std::vector<DirectedGroup> racks;
  for (const DirectedGroup& one : boundaries())
    if (!tree_.is_leaf(one.group)) racks.push_back(one);
  const Synthesis synthesis(tree_, note_, *blueprint_, well_, took(racks, kFactor));
  const Likeness like = *synthesis.likeness(racks, std::numeric_limits<double>::infinity());
  EXPECT_LT(like.left, kNothing);
  EXPECT_NEAR(like.factor, kFactor, kFactor / 10);
}

// Where ranks work between messages all edges take less than they would if links were all there is.
TEST_P(SynthesisTest, WhichEdgesAndNotHowMuch) {
  constexpr double kFactor = 3, kMost = 10, kUsual = 0.6, kFar = 0.15;
  const auto rack = std::find_if(tree_.groups.begin(), tree_.groups.end(),
                                 [](const Group& group) { return group.name == "rack1"; });
  ASSERT_NE(rack, tree_.groups.end());
  const DirectedGroup slow{static_cast<int>(rack - tree_.groups.begin()), false};
  const Synthesis synthesis(tree_, note_, *blueprint_, well_, took({slow}, kFactor, kUsual));
  const double left = synthesis.likeness({slow}, kMost)->left;
  for (const DirectedGroup& other : boundaries())
    EXPECT_TRUE(other == slow || synthesis.likeness({other}, kMost)->left > left + kFar)
        << other.group << " " << other.egress << " leaves as little";
}

INSTANTIATE_TEST_SUITE_P(Trees, SynthesisTest,
                         testing::Values("racks=2,2,2;nic=400Mbit/s;oversubscription=4",
                                         "racks=3,3,3;nic=400Mbit/s;oversubscription=4",
                                         "racks=4,3,5;nic=400Mbit/s;oversubscription=2"));

}  // namespace
}  // namespace sennit::diagnose
