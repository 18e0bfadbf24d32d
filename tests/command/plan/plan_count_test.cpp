// plan_count_test.cpp: what `sennit plan` does not count it says nothing of, and the plan is told
// all the same.
//
// ctest not-under-tsan: it has one thread
// ctest links: sennit_commands
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "collectives/common.hpp"
#include "command/plan/plan.hpp"

namespace sennit {
namespace {

constexpr int kManyRanks = 1 << 18;

// Every rank hands something on to the next. In a broadcast programs are of 16 kinds, and each is
// large.
class HandsOn : public Algorithm {
 public:
  std::string_view name() const override { return "hands_on"; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::all_gather ||
           request.collective == Collective::broadcast;
  }
  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }
  Estimate estimate(const TierTree& tree, const Request&, const Parameters&,
                    const CostModel&) const override {
    Estimate estimate;
    estimate.tier_ns.assign(tree.tiers.size(), 1'000);
    estimate.messages = 1;
    return estimate;
  }
  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    const bool large = request.collective == Collective::broadcast;
    return make_blueprint([&tree, large](int position) { return program(tree, large, position); });
  }

 private:
  static Program program(const TierTree& tree, bool large, int position) {
    constexpr int kOfAKind = kManyRanks / 16;
    constexpr size_t kLarge = 1 << 20;  // ranges
    const int ranks = tree.ranks(), next = (position + 1) % ranks,
              before = (position + ranks - 1) % ranks;
    const Range whole = block_range(0, 1);
    ProgramBuilder builder(false);
    builder.send(next, builder.input({&whole, 1}), tree.crossing_tier(position, next));
    builder.recv(before, builder.scratch({&whole, 1}), tree.crossing_tier(position, before));
    for (int i = 0; large && i <= position / kOfAKind; i++)
      builder.copy(builder.output({&whole, 1}), builder.input({&whole, 1}));
    Program program = builder.finish();
    if (large) program.ranges.resize(kLarge);
    return program;
  }
};

}  // namespace

SENNIT_ALGORITHM_ENTRY(HandsOn)

namespace {

Result<plan::Facts> count(int ranks, Collective collective) {
  plan::Problem problem;
  problem.tree = TierTree::flat(ranks);
  problem.request.collective = collective;
  problem.request.count = 1;
  Plan plan;
  plan.algorithm = "hands_on";
  return plan::count(problem, plan);
}

TEST(PlanCount, CountsWhatIsSoonMade) {
  constexpr int kRanks = 4;
  const Result<plan::Facts> facts = count(kRanks, Collective::all_gather);
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  EXPECT_TRUE(facts->counted);
  EXPECT_EQ(facts->programs.messages, uint64_t{kRanks});
}

// Each would name a range for every rank.
TEST(PlanCount, MakesNoProgramsThatGrowWithTheSquareOfManyRanks) {
  const Result<plan::Facts> facts = count(10'000, Collective::all_gather);
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  EXPECT_FALSE(facts->counted);
}

TEST(PlanCount, IsLeftOutWhereThereIsNoMemoryForIt) {
  const Result<plan::Facts> facts = count(kManyRanks, Collective::broadcast);
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  EXPECT_FALSE(facts->counted);
}

}  // namespace
}  // namespace sennit
