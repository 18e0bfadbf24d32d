// simulate_symmetry_test.cpp: simulating one rank for all that do the same changes no figure: every
// algorithm on regular trees, and on trees with one group that is not like the others.
//
// ctest not-under-tsan: it has one thread
#include "simulate/symmetry.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "simulate/simulate.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "tests/support/verify_programs.hpp"

namespace sennit {
namespace {

// Of equal groups, but for one where so asked.
TierTree regular_tree(std::mt19937_64& random, bool with_odd_one) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<uint64_t>(limit));
  };
  std::vector<int> fanouts;
  std::vector<uint64_t> egress;
  for (int tier = 1 + below(3); tier > 0; tier--) {
    fanouts.push_back(2 + below(3));
    egress.push_back(1'000'000 * (1 + random() % 1000));
  }
  TierTree tree = TierTree::uniform(fanouts, egress);
  for (Group& group : tree.groups)
    if (group.children > 0) group.latency_ns = 1000u * (1u + group.tier);
  if (below(3) == 0) {  // latencies that follow from wires, and perhaps one wire of another kind
    for (Group& group : tree.groups) {
      group.latency_ns = 0;
      group.wire = Wire::infiniband;
      group.switches = group.tier;
    }
    if (with_odd_one)
      tree.groups[static_cast<size_t>(below(static_cast<int>(tree.groups.size())))].wire =
          Wire::ethernet;
  }
  if (with_odd_one) {
    Group& odd =
        tree.groups[1 + static_cast<size_t>(below(static_cast<int>(tree.groups.size()) - 1))];
    odd.egress.bytes_per_s /= 2;
  }
  return tree;
}

Request request_for(Collective collective, int ranks, uint64_t bytes) {
  Request request;
  request.collective = collective;
  request.type = DataType::uint8;
  request.count = collective == Collective::barrier ? 0 : bytes;
  if (has_root(collective)) request.root = ranks / 2;
  return request;
}

// With one rank for all that do the same, and with every rank.
std::pair<Result<SimulatedTime>, Result<SimulatedTime>> both_ways(
    const TierTree& tree, const Request& request, const Plan& plan,
    double tolerance = SimulateOptions{}.tolerance, bool queues = false) {
  SimulateOptions options;
  options.tolerance = tolerance;
  options.queues = queues;
  SimulateOptions every_rank = options;
  every_rank.symmetry = false;
  return {simulate(tree, request, plan, options), simulate(tree, request, plan, every_rank)};
}

TEST(SimulateSymmetry, ChangesNothing) {
  std::mt19937_64 random(sennit_test::seed());
  size_t saved = 0, one_class = 0, evens = 0;
  for (int round = 0; round < sennit_test::trials(20); round++) {
    const TierTree tree = regular_tree(random, round % 2 == 1);
    for (int c = 0; c < kCollectives - 1; c++) {
      const uint64_t bytes =
          random() % 2 ? 1 + random() % 100 : uint64_t{1'000} * static_cast<uint64_t>(tree.ranks());
      const Request request = request_for(static_cast<Collective>(c), tree.ranks(), bytes);
      for (const Algorithm* algorithm : algorithms()) {
        if (!algorithm->applies(tree, request)) continue;
        const std::vector<Parameters> choices = algorithm->candidates(tree, request);
        Plan plan;
        plan.algorithm = algorithm->name();
        plan.parameters = choices[random() % choices.size()];
        plan.parameters.chunks =
            algorithm->pipelines() ? 1 + static_cast<uint32_t>(random() % 10) : 1;
        const auto [with, without] = both_ways(tree, request, plan, 0, random() % 2 == 1);
        ASSERT_TRUE(with.ok() && without.ok()) << with.status().text() << without.status().text();
        SCOPED_TRACE("round " + std::to_string(round) + ", " +
                     std::string(name(request.collective)) + " of " + std::to_string(bytes) + ", " +
                     plan.algorithm + ", " + plan.parameters.to_text() + "\n" + tree.to_text());
        ASSERT_EQ(without->rank_classes, static_cast<uint32_t>(tree.ranks()));
        saved += without->rank_classes - with->rank_classes;
        one_class += with->rank_classes == 1;
        // Rates are doubles, summed in another order: a nanosecond per message in sequence. Where
        // slices are not all of one length, those that differ by rounding alone count as alike, a
        // little more than 1 in 1,000.
        const bool even =
            bytes % (static_cast<uint64_t>(tree.ranks()) * plan.parameters.chunks) == 0;
        evens += even;
        const double tolerance = (even ? 1e-6 : 2e-3) * static_cast<double>(without->time_ns) + 50;
        ASSERT_NEAR(static_cast<double>(with->time_ns), static_cast<double>(without->time_ns),
                    tolerance);
        ASSERT_EQ(with->messages, without->messages);
        const auto alike = [&](uint64_t bytes_with, uint64_t bytes_without) {
          return std::max(bytes_with, bytes_without) - std::min(bytes_with, bytes_without) <=
                 (even ? 0 : bytes_without / 500);
        };
        for (size_t g = 0; g < tree.groups.size(); g++) {
          const GroupLoad &one = with->groups[g], &all = without->groups[g];
          ASSERT_PRED2(alike, one.egress_bytes, all.egress_bytes) << "group " << g;
          ASSERT_PRED2(alike, one.ingress_bytes, all.ingress_bytes) << "group " << g;
          // Every pause between messages moves on its own.
          ASSERT_NEAR(static_cast<double>(one.egress_busy_ns),
                      static_cast<double>(all.egress_busy_ns), even ? tolerance : 5 * tolerance);
        }
      }
    }
  }
  EXPECT_GT(saved, 0u) << "nothing was alike anywhere";
  EXPECT_GT(one_class, 0u) << "all ranks alike nowhere";
  EXPECT_GT(evens, 0u) << "lengths divide nowhere";
}

// What a blueprint says of a peer, held against that peer's program.
TEST(SimulateSymmetry, MirroredPeersMeetAsTheBlueprintSays) {
  std::mt19937_64 random(sennit_test::seed());
  size_t met = 0;
  std::set<std::string> families;
  for (int round = 0; round < sennit_test::trials(40); round++) {
    std::vector<int> fanouts;
    // The first has tiers for every algorithm.
    for (uint64_t tier = round == 0 ? 3 : 1 + random() % 3; tier > 0; tier--)
      fanouts.push_back(2 + static_cast<int>(random() % 5));
    const std::vector<uint64_t> egress(fanouts.size(), 1'000'000'000);
    const TierTree tree = TierTree::uniform(fanouts, egress);
    for (int c = 0; c < kCollectives - 1; c++) {
      const Request request = request_for(static_cast<Collective>(c), tree.ranks(), 1 << 20);
      for (const Algorithm* algorithm : algorithms()) {
        if (!algorithm->applies(tree, request)) continue;
        const std::vector<Parameters> choices = algorithm->candidates(tree, request);
        const auto blueprint =
            algorithm->prepare(tree, request, choices[random() % choices.size()]);
        const simulation::GroupCall call = simulation::whole_tree(tree, request, 1, *blueprint);
        const simulation::Look mine = simulation::look_at(call, blueprint->program(0), false);
        const auto number = [](const simulation::Look& look, int peer) {
          return static_cast<size_t>(std::ranges::find(look.peers, peer) - look.peers.begin());
        };
        for (size_t i = 0; i < mine.peers.size(); i++) {
          const int peer = mine.peers[i], mirrored = blueprint->mirrored(peer);
          if (mirrored < 0) continue;
          const simulation::Look theirs =
              simulation::look_at(call, blueprint->program(peer), false);
          const size_t here = number(mine, mirrored), there = number(theirs, 0);
          SCOPED_TRACE(std::string(algorithm->name()) + ", peer " + std::to_string(peer) +
                       " mirrored by " + std::to_string(mirrored) + "\n" + tree.to_text());
          ASSERT_LT(here, mine.peers.size());
          ASSERT_LT(there, theirs.peers.size());
          ASSERT_EQ(theirs.hash, mine.hash);
          ASSERT_EQ(theirs.shape.receives[there], mine.shape.receives[here]);
          ASSERT_EQ(theirs.shape.sends[there], mine.shape.sends[here]);
          families.emplace(algorithm->name());
          met++;
        }
      }
    }
  }
  EXPECT_GT(met, 0u);
  EXPECT_EQ(families, (std::set<std::string>{"aggregated", "direct", "tiered"}));
}

// Two chunks' messages arrive at the same time, and each is to be reduced: the order must not
// depend on how ranks are numbered.
TEST(SimulateSymmetry, ChangesNothingWhereChunksArriveTogether) {
  TierTree tree = TierTree::uniform({4, 4}, {12'500'000'000, 3'125'000'000});
  for (Group& group : tree.groups)
    if (group.children > 0) group.latency_ns = group.parent < 0 ? 14'000 : 10'000;
  const Request request = request_for(Collective::all_reduce, tree.ranks(), 32 << 20);
  Plan plan;
  plan.algorithm = "tiered";
  plan.parameters.chunks = 32;
  plan.parameters.radices = {2};
  const auto [with, without] = both_ways(tree, request, plan);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_NEAR(static_cast<double>(with->time_ns), static_cast<double>(without->time_ns),
              1e-4 * static_cast<double>(without->time_ns));
}

// A regular tree is one class; a rank with a slower link is one of its own, and tells its
// neighbours apart.
TEST(SimulateSymmetry, OneClassWhereAllDoTheSame) {
  TierTree tree = TierTree::uniform({4, 4}, {1'000'000'000, 2'000'000'000});
  const Request request = request_for(Collective::all_reduce, tree.ranks(), 1 << 20);
  Plan plan;
  plan.algorithm = "tiered";
  EXPECT_EQ(simulate(tree, request, plan, {})->rank_classes, 1u);
  tree.groups.back().egress.bytes_per_s /= 2;
  EXPECT_GT(simulate(tree, request, plan, {})->rank_classes, 1u);
}

// Two to four tiers of 100 to 800 ranks; in the two widest tiers a group carries less than its
// children, down to a seventh.
TierTree oversubscribed_tree(std::mt19937_64& random) {
  for (;;) {
    std::vector<int> fanouts;  // from within
    std::vector<uint64_t> egress{50'000'000'000};
    uint64_t ranks = 1;
    for (uint64_t tier = 2 + random() % 3; tier > 0; tier--) {
      fanouts.push_back(2 + static_cast<int>(random() % 7));
      ranks *= static_cast<uint64_t>(fanouts.back());
      const uint64_t inside = egress.back() * static_cast<uint64_t>(fanouts.back());
      egress.push_back(inside / (tier > 2 ? 1 : 1 + random() % 7));  // of the wide tiers
    }
    if (ranks < 100 || ranks > 800) continue;
    egress.pop_back();  // nothing leaves the root
    std::ranges::reverse(fanouts);
    std::ranges::reverse(egress);
    TierTree tree = TierTree::uniform(fanouts, egress);
    for (Group& group : tree.groups)
      if (group.children > 0) group.latency_ns = 2000u * (1u + group.tier);
    return tree;
  }
}

// A tree's kinds know nothing of capacities: one with an odd group is not planned with it.
Plan random_plan(const TierTree& tree, const Request& request, bool with_odd_one,
                 std::mt19937_64& random) {
  Plan plan;
  plan.algorithm = !with_odd_one && random() % 3 == 0 ? "tree" : "tiered";
  const std::vector<Parameters> choices = find_algorithm(plan.algorithm)->candidates(tree, request);
  plan.parameters = choices[random() % choices.size()];
  plan.parameters.chunks = 1u << random() % 6;
  return plan;
}

// Under a root hardly two ranks do the same at once: one of each kind stands for its kind, and
// the time is nearly that of all. Of 800 cells 94% were within a twentieth, and the worst, of a
// small message, 18% off.
TEST(SimulateSymmetry, OneOfEachKindIsNearlyAll) {
  std::mt19937_64 random(sennit_test::steady_seed());
  int all_cells = 0, by_kind = 0, within_a_twentieth = 0;
  for (int round = 0; round < sennit_test::trials(20); round++) {
    TierTree tree = oversubscribed_tree(random);
    if (round % 2 == 1) {
      Group& odd = tree.groups[1 + random() % (tree.groups.size() - 1)];
      odd.egress.bytes_per_s = odd.egress.bytes_per_s * 3 / 4;
    }
    for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
      Request request = request_for(collective, tree.ranks(), uint64_t{1} << (20 + random() % 8));
      request.root = static_cast<int>(random() % static_cast<uint64_t>(tree.ranks()));
      const Plan plan = random_plan(tree, request, round % 2 == 1, random);
      SimulateOptions of_kinds;
      of_kinds.every_rank_up_to = 0;
      const Result<SimulatedTime> kinds = simulate(tree, request, plan, of_kinds);
      const Result<SimulatedTime> all = simulate(tree, request, plan, {});
      SCOPED_TRACE(std::string(name(request.collective)) + " of " + std::to_string(request.count) +
                   " from " + std::to_string(request.root) + ", " + plan.algorithm + ", " +
                   plan.parameters.to_text() + "\n" + tree.to_text());
      ASSERT_TRUE(kinds.ok() && all.ok()) << kinds.status().text() << all.status().text();
      all_cells++;
      if (!kinds->by_kind) continue;  // they do not fit together
      const double ratio = static_cast<double>(kinds->time_ns) / static_cast<double>(all->time_ns);
      ASSERT_NEAR(ratio, 1, 0.3);
      for (size_t t = 0; t < tree.tiers.size(); t++)
        ASSERT_NEAR(static_cast<double>(kinds->tiers[t].bytes),
                    static_cast<double>(all->tiers[t].bytes),
                    0.01 * static_cast<double>(all->tiers[t].bytes));
      // No link carries more than it can.
      for (size_t g = 1; g < tree.groups.size(); g++) {
        const Capacity& out = tree.groups[g].egress;
        ASSERT_LE(static_cast<double>(kinds->groups[g].egress_bytes),
                  1.01 * static_cast<double>(kinds->groups[g].egress_busy_ns) * 1e-9 *
                      static_cast<double>(out.bytes_per_s))
            << "group " << g;
      }
      by_kind++;
      within_a_twentieth += std::abs(ratio - 1) < 0.05;
    }
  }
  EXPECT_LT(by_kind - within_a_twentieth, 3 + by_kind / 5);
  EXPECT_GT(3 * by_kind, 2 * all_cells);
}

// The outermost exchange has the shortest pieces, and takes longest: it is not left out.
TEST(SimulateSymmetry, NoExchangeIsLeftOutWhereItsPiecesAreShort) {
  TierTree tree = TierTree::uniform({4, 8, 8}, {1'000'000'000, 2'000'000'000, 4'000'000'000});
  for (Group& group : tree.groups)
    if (group.children > 0) group.latency_ns = group.parent < 0 ? 14'000 : 2'000;
  Plan plan;
  plan.algorithm = "tiered";
  SimulateOptions of_kinds;
  of_kinds.every_rank_up_to = 0;
  of_kinds.fluid = true;
  SimulateOptions of_all;
  of_all.fluid = true;
  size_t by_kind = 0, of_every_rank = 0;
  for (const Collective collective : {Collective::broadcast, Collective::reduce})
    for (const uint64_t bytes : {100, 200, 300, 700, 1'000, 1'500, 2'500, 5'000, 20'000, 100'000}) {
      const Request request = request_for(collective, tree.ranks(), bytes);
      const Result<SimulatedTime> kinds = simulate(tree, request, plan, of_kinds);
      const Result<SimulatedTime> all = simulate(tree, request, plan, of_all);
      ASSERT_TRUE(kinds.ok() && all.ok()) << kinds.status().text() << all.status().text();
      SCOPED_TRACE(std::string(name(collective)) + " of " + std::to_string(bytes));
      EXPECT_EQ(kinds->rounds, all->rounds);
      EXPECT_EQ(kinds->latency_ns, all->latency_ns);
      by_kind += kinds->by_kind;
      of_every_rank += !kinds->by_kind;
    }
  EXPECT_GT(by_kind, 0u);
  EXPECT_GT(of_every_rank, 0u);
}

// Of pieces of a few elements some ranks of a kind have one and others none: all are simulated.
TEST(SimulateSymmetry, EveryRankWhereAKindsPiecesAreShort) {
  const TierTree tree = TierTree::uniform({4, 8, 8}, {1'000'000, 2'000'000, 4'000'000});
  Plan plan;
  plan.algorithm = "tiered";
  SimulateOptions options;
  options.every_rank_up_to = 0;
  const auto classes = [&](uint64_t bytes) {
    const Request request = request_for(Collective::broadcast, tree.ranks(), bytes);
    return simulate(tree, request, plan, options)->rank_classes;
  };
  EXPECT_EQ(classes(100), 256u);
  EXPECT_LT(classes(1'000'000), 10u);
}

// The kinds are those of the tree that was planned for. On another, one rank of a kind cannot stand
// for those behind a slow link.
TEST(SimulateSymmetry, EveryRankWhereALinkIsSlowerThanWasPlanned) {
  const TierTree planned = TierTree::uniform({4, 8, 8}, {40'000'000, 8'000'000, 1'000'000});
  const Request request = request_for(Collective::broadcast, planned.ranks(), 1'000'000);
  const auto blueprint = find_algorithm("tiered")->prepare(planned, request, {});
  SimulateOptions options;
  options.every_rank_up_to = 0;
  EXPECT_TRUE(simulate(planned, request, *blueprint, 1, options)->by_kind);
  TierTree actual = planned;
  actual.groups[1].ingress.bytes_per_s /= 4;  // the root is in another
  EXPECT_FALSE(simulate(actual, request, *blueprint, 1, options)->by_kind);
}

// Lengths that differ by rounding alone are taken as equal: of many ranks, up to 1 in 64.
TEST(SimulateSymmetry, OfManyRanksRoundedLengthsChangeLittle) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const TierTree tree = TierTree::uniform({4, 280}, {1'000'000'000, 20'000'000'000});
  const Request request = request_for(Collective::all_reduce, tree.ranks(), 3'333'333);
  Plan plan;
  plan.algorithm = "tiered";
  plan.parameters.chunks = 7;
  plan.parameters.radices = {16};
  const auto [with, without] = both_ways(tree, request, plan);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_LT(with->rank_classes, 100u);
  EXPECT_NEAR(static_cast<double>(with->time_ns), static_cast<double>(without->time_ns),
              0.02 * static_cast<double>(without->time_ns));
  EXPECT_NEAR(static_cast<double>(with->tiers[0].bytes),
              static_cast<double>(without->tiers[0].bytes),
              0.02 * static_cast<double>(without->tiers[0].bytes));
}

}  // namespace
}  // namespace sennit
