// asked_for_test.cpp: what a tuning file or an option asks for is verified before it first runs, by
// every rank alike; what there is to ask for passes, at few ranks and at many.
#include "plan/asked_for.hpp"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>

#include <fmt/core.h>

#include "api/c_api.hpp"
#include "api/call/planning.hpp"
#include "collectives/algorithm.hpp"
#include "plan/tuning/table.hpp"
#include "tests/support/random_trees.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "tests/support/tuning_file.hpp"

namespace sennit {
namespace {

// A broadcast of the first half alone: every call returns, and nobody has the second half.
class HalfBroadcast : public Algorithm {
 public:
  static inline std::atomic<int> programs{0};

  std::string_view name() const override { return "half"; }
  bool applies(const TierTree&, const Request& request) const override {
    return request.collective == Collective::broadcast;
  }
  std::vector<Parameters> candidates(const TierTree&, const Request&) const override {
    return {{}};
  }
  Estimate estimate(const TierTree& tree, const Request&, const Parameters&,
                    const CostModel&) const override {
    Estimate estimate;
    estimate.tier_ns.assign(tree.tiers.size(), uint64_t{1} << 50);
    return estimate;
  }
  std::unique_ptr<Blueprint> prepare(const TierTree& tree, const Request& request,
                                     const Parameters&) const override {
    class Half : public Blueprint {
     public:
      Half(const TierTree& tree, const Request& request) : tree_(tree), request_(request) {}
      Program program(int position) const override {
        programs++;
        ProgramBuilder builder;
        const Range half{0, 0, kUnits / 2};
        if (position != request_.root) {
          builder.recv(request_.root, builder.output({&half, 1}),
                       tree_.crossing_tier(position, request_.root));
          return builder.finish();
        }
        if (!request_.in_place) builder.copy(builder.output({&half, 1}), builder.input({&half, 1}));
        for (int peer = 0; peer < tree_.ranks(); peer++)
          if (peer != position)
            builder.send(peer, builder.input({&half, 1}), tree_.crossing_tier(position, peer));
        return builder.finish();
      }

     private:
      const TierTree& tree_;
      const Request& request_;
    };
    return std::make_unique<Half>(tree, request);
  }
};
SENNIT_ALGORITHM_ENTRY(HalfBroadcast)

Request broadcast(uint64_t count) {
  Request request;
  request.collective = Collective::broadcast;
  request.count = count;
  return request;
}

// Twice, as a verdict is kept, and then what nobody asked to be done otherwise.
void expect_refused(sennit_test::Ranks& ranks) {
  ASSERT_TRUE(ranks.ok());
  std::vector<std::string> errors(static_cast<size_t>(ranks.size()));
  HalfBroadcast::programs = 0;
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::vector<float> x(1000, static_cast<float>(rank));
    for (int i = 0; i < 2; i++) {
      ASSERT_EQ(sennit_broadcast(x.data(), x.data(), x.size(), SENNIT_FLOAT32, 0, comm),
                SENNIT_INVALID_ARGUMENT);
      errors[static_cast<size_t>(rank)] = sennit_last_error();
      ASSERT_EQ(x[999], static_cast<float>(rank));
    }
    ASSERT_EQ(sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_MAX, comm),
              SENNIT_OK)
        << sennit_last_error();
    ASSERT_EQ(x[999], static_cast<float>(ranks.size() - 1));
  });
  EXPECT_NE(errors[0].find("broadcast: half, 1 chunk, as an option or the tuning file asks for"),
            std::string::npos)
      << errors[0];
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  EXPECT_GT(HalfBroadcast::programs, 0);
  EXPECT_LE(HalfBroadcast::programs, ranks.size() * std::min(ranks.size(), kVerifiedRanks))
      << "once, not per call";
}

TEST(AskedFor, AnOptionsWrongProgramIsRefusedOnEveryRank) {
  setenv("SENNIT_ALGORITHM", "half", 1);
  sennit_test::Ranks ranks(4);
  unsetenv("SENNIT_ALGORITHM");
  expect_refused(ranks);
}

TEST(AskedFor, AFilesWrongProgramIsRefusedOnEveryRank) {
  uint64_t tree = 0;
  {
    sennit_test::Ranks ranks(3);
    tree = internal(ranks.comm(0)).tree().fingerprint();
  }
  Tuning table;
  table.set(tree, broadcast(1000), 3, {"half", {}, 1, 1});
  const TuningFile file(table.to_text());
  sennit_test::Ranks ranks(3);
  expect_refused(ranks);
}

TEST(AskedFor, AWrongProgramIsRefusedAmongManyRanks) {
  Plan plan;
  plan.algorithm = "half";
  for (const int fanout : {kVerifiedRanks + 1, 1000, 10'000}) {
    AskedFor asked;
    const TierTree tree = TierTree::flat(fanout);
    plan.asked_for = true;
    HalfBroadcast::programs = 0;
    EXPECT_FALSE(asked.check(tree, broadcast(7), plan).ok());
    EXPECT_FALSE(asked.check(tree, broadcast(8), plan).ok()) << "another size";
    EXPECT_LE(HalfBroadcast::programs, kVerifiedRanks);
    plan.asked_for = false;
    EXPECT_TRUE(asked.check(tree, broadcast(7), plan).ok()) << "the planner's own";
  }
}

// What a schedule does may follow from the capacities of the tree.
TEST(AskedFor, IsVerifiedAgainOnATreeOfOtherCapacities) {
  constexpr int kRanks = 4;
  PlanOptions options;
  options.algorithm = "half";
  Planning planning(TierTree::flat(kRanks), options, true, {});
  const auto programs_made = [&] {
    HalfBroadcast::programs = 0;
    EXPECT_FALSE(planning.prepare(broadcast(7), Planning::Memory::host, nullptr, 0).ok());
    return HalfBroadcast::programs.load();
  };
  EXPECT_GT(programs_made(), 0);
  EXPECT_EQ(programs_made(), 0) << "the verdict is kept";
  planning.use(std::make_shared<const FabricVersion>(FabricVersion{1, {}}));
  EXPECT_GT(programs_made(), 0);
}

constexpr Collective kAll[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::reduce,         Collective::gather,
    Collective::scatter,    Collective::all_to_all,     Collective::barrier};

std::vector<Parameters> some_parameters(const Algorithm& algorithm, const TierTree& tree,
                                        const Request& request, std::mt19937_64& random) {
  std::vector<Parameters> all = algorithm.candidates(tree, request);
  const Takes takes = algorithm.takes(request.collective);
  for (int i = 0; i < 4; i++) {
    Parameters odd;
    odd.chunks = 1 + static_cast<uint32_t>(random() % kMostChunks);
    for (uint64_t r = takes.radices == 0 ? 0 : random() % std::min<uint64_t>(4, takes.radices + 1);
         r > 0; r--)
      odd.radices.push_back(static_cast<uint16_t>(
          std::max<uint64_t>(takes.least_radix, random() % (i % 2 ? 7 : 65'536))));
    if (takes.whole_stages > 0)
      odd.whole_stages = static_cast<uint8_t>(random() % (i % 2 ? 5 : takes.whole_stages + 1) %
                                              (takes.whole_stages + 1u));
    all.push_back(odd);
  }
  return all;
}

// All that an algorithm takes is right, whatever the tree: nothing that may be asked for is refused
// in vain.
TEST(AskedFor, WhatAlgorithmsTakeIsRight) {
  std::mt19937_64 random(sennit_test::seed());
  for (int round = 0; round < sennit_test::trials(20); round++) {
    const int ranks = 2 + static_cast<int>(random() % (round % 10 == 3 ? 500 : 20));
    const TierTree tree = random_tree(random, ranks);
    for (const Algorithm* algorithm : algorithms())
      for (const Collective collective : kAll) {
        Request request;
        request.collective = collective;
        request.count = 1 + random() % 100;
        request.root =
            has_root(collective) ? static_cast<int>(random() % static_cast<uint64_t>(ranks)) : 0;
        if (random() % 3 == 0 &&
            (collective == Collective::all_gather || collective == Collective::reduce_scatter))
          for (int r = 0; r < ranks; r++) request.counts.push_back(random() % 9);
        request.vector_variant = !request.counts.empty();
        if (algorithm->name() == "half" || !algorithm->applies(tree, request)) continue;
        for (const Parameters& parameters : some_parameters(*algorithm, tree, request, random)) {
          Plan plan;
          plan.algorithm = algorithm->name();
          plan.parameters = parameters;
          EXPECT_TRUE(check_parameters(*algorithm, collective, parameters).ok());
          const Status status = verify_plan(tree, request, plan);
          EXPECT_TRUE(status.ok())
              << name(collective) << " of " << ranks << " by " << plan.algorithm << ", "
              << parameters.to_text() << ": " << status.text() << "\n"
              << tree.to_text();
          if (!status.ok()) return;
        }
      }
  }
}

TEST(AskedFor, TheSmallerTreeIsLikeTheTree) {
  const auto fanouts = [](const TierTree& tree) {
    std::vector<int> all;
    for (int group = 0; !tree.is_leaf(group);
         group = tree.groups[static_cast<size_t>(group)].first_child)
      all.push_back(tree.groups[static_cast<size_t>(group)].children);
    return all;
  };
  EXPECT_EQ(fanouts(smaller_tree(TierTree::uniform({3, 2, 4}), 64)), (std::vector<int>{3, 2, 4}));
  EXPECT_EQ(fanouts(smaller_tree(TierTree::uniform({8, 192, 2, 8}), 64)),
            (std::vector<int>{3, 3, 2, 3}));
  EXPECT_EQ(fanouts(smaller_tree(TierTree::uniform({2, 100, 8}), 64)), (std::vector<int>{2, 5, 5}));
  EXPECT_EQ(fanouts(smaller_tree(TierTree::flat(1'000), 64)), (std::vector<int>{64}));
  std::mt19937_64 random(sennit_test::seed());
  for (int round = 0; round < 100; round++) {
    const TierTree tree = random_tree(random, 65 + static_cast<int>(random() % 1000));
    const TierTree smaller = smaller_tree(tree, 64);
    EXPECT_LE(smaller.ranks(), 64);
    EXPECT_GE(smaller.ranks(), 2);
    EXPECT_LE(smaller.tiers.size(), tree.tiers.size());
    EXPECT_EQ(smaller.check(), "");
  }
}

}  // namespace
}  // namespace sennit
