// tiered_test.cpp: the tiered family on uniform and random unequal trees: right results, the fewest
// bytes, the same bits.
//
// ctest not-under-tsan: it has one thread
#include <algorithm>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "plan/bound.hpp"
#include "tests/support/interpreter.hpp"
#include "tests/support/random_trees.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "topology/source.hpp"
#include "verify/verify.hpp"

namespace sennit {
namespace {

constexpr int kRounds = sennit_test::trials(200);  // the last quarter on trees of up to 64 ranks

const Algorithm& tiered() { return *find_algorithm("tiered"); }

Request request_of(Collective collective, uint64_t count, bool in_place = false) {
  Request r;
  r.collective = collective;
  r.count = count;
  r.in_place = in_place;
  return r;
}

std::string run(const TierTree& tree, const Request& request, const Parameters& parameters,
                const Circumstances& execution, uint64_t seed) {
  const auto blueprint = tiered().prepare(tree, request, parameters);
  return Interpreter(tree, request, *blueprint, execution, seed).run();
}

TEST(Tiered, AllReduceOnUniformTrees) {
  for (const auto& fanouts :
       std::vector<std::vector<int>>{{1}, {2}, {3}, {8}, {2, 4}, {3, 2, 2}, {4, 3, 2}})
    for (const bool in_place : {false, true})
      EXPECT_EQ(run(TierTree::uniform(fanouts), request_of(Collective::all_reduce, 1000, in_place),
                    {}, {}, 1),
                "");
}

class TieredRandom : public ::testing::TestWithParam<Collective> {};

TEST_P(TieredRandom, UnequalTreesGetTheRightResult) {
  std::mt19937_64 random(sennit_test::seed());
  for (int round = 0; round < kRounds; round++) {
    const int ranks = 1 + static_cast<int>(random() % (round < kRounds * 3 / 4 ? 20 : 64));
    const TierTree tree = random_tree(random, ranks);
    ASSERT_EQ(tree.check(), "") << "round " << round;
    Request request = request_of(GetParam(), random() % 40, random() % 2 == 0);
    if (random() % 10 == 0) request.count = 1000;
    request.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    if (request.collective == Collective::barrier) request.count = 0;
    if ((request.collective == Collective::all_gather ||
         request.collective == Collective::reduce_scatter) &&
        random() % 3 == 0) {
      request.vector_variant = true;
      request.count = 0;
      for (int r = 0; r < ranks; r++)
        request.counts.push_back(random() % 4 == 0 ? 0 : random() % 30);
    }
    Parameters parameters;
    if (random() % 3 == 0) parameters.radices = {static_cast<uint16_t>(2 + random() % 4)};
    if (random() % 8 == 0) parameters.radices = {3, 2, 5};
    const bool all = request.collective == Collective::all_reduce;
    if (all && random() % 3 == 0)
      parameters.whole_stages = random() % 2 == 0 ? 255 : static_cast<uint8_t>(random() % 3);
    Circumstances execution;
    execution.chunks = 1 + static_cast<int>(random() % 3);
    execution.delivery = static_cast<Delivery>(random() % 3);
    if (request.collective == Collective::barrier) {
      execution = {};
      execution.late_rank = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    }
    ASSERT_EQ(run(tree, request, parameters, execution, random()), "")
        << "round " << round << " " << parameters.to_text() << "\n"
        << tree.to_text();
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, TieredRandom,
                         ::testing::Values(Collective::all_reduce, Collective::all_gather,
                                           Collective::reduce_scatter, Collective::broadcast,
                                           Collective::reduce, Collective::barrier),
                         [](const auto& test) { return std::string(name(test.param)); });

// Time of the busiest boundary, in seconds for a vector (or all blocks) of one byte, from counted
// units.
double busiest(const TierTree& tree, const Request& request, const Verdict& verdict) {
  const bool blocks = request.collective == Collective::all_gather ||
                      request.collective == Collective::reduce_scatter;
  const double whole = static_cast<double>(kUnits) * (blocks ? tree.ranks() : 1);
  double time = 0;
  for (size_t g = 1; g < tree.groups.size(); g++) {
    time = std::max(time, static_cast<double>(verdict.egress_units[g]) / whole /
                              static_cast<double>(tree.groups[g].egress.bytes_per_s));
    time = std::max(time, static_cast<double>(verdict.ingress_units[g]) / whole /
                              static_cast<double>(tree.groups[g].ingress.bytes_per_s));
  }
  return time;
}

// What the children of every group must send and receive: exactly, in units.
void expect_fewest_units(const TierTree& tree, const Request& request, const Verdict& verdict) {
  const uint64_t n = static_cast<uint64_t>(tree.ranks());
  for (size_t g = 0; g < tree.groups.size(); g++) {
    const Group& group = tree.groups[g];
    const uint64_t size = static_cast<uint64_t>(group.size);
    const bool has_root = request.root >= group.first && request.root < group.first + group.size;
    uint64_t out = 0, in = 0;
    for (int c = group.first_child; c < group.first_child + group.children; c++) {
      out += verdict.egress_units[static_cast<size_t>(c)];
      in += verdict.ingress_units[static_cast<size_t>(c)];
    }
    const uint64_t exchanged = static_cast<uint64_t>(std::max(0, group.children - 1)) * kUnits;
    const uint64_t own_out = g == 0 ? 0 : verdict.egress_units[g],
                   own_in = g == 0 ? 0 : verdict.ingress_units[g];
    const bool inner = group.children > 0;
    switch (request.collective) {
      case Collective::all_reduce:
        EXPECT_TRUE(!inner || (out == 2 * exchanged + own_out && in == 2 * exchanged + own_in));
        break;
      case Collective::all_gather:
        EXPECT_TRUE(g == 0 || own_in == (n - size) * kUnits);
        EXPECT_TRUE(!inner || out == n * exchanged + own_out);
        break;
      case Collective::reduce_scatter:
        EXPECT_TRUE(g == 0 || own_out == (n - size) * kUnits);
        EXPECT_TRUE(!inner || in == n * exchanged + own_in);
        break;
      case Collective::broadcast:
        EXPECT_TRUE(g == 0 || own_in == (has_root ? 0 : kUnits));
        EXPECT_TRUE(!inner || out == exchanged + own_out);
        break;
      case Collective::reduce:
        EXPECT_TRUE(g == 0 || own_out == (has_root ? 0 : kUnits));
        EXPECT_TRUE(!inner || in == exchanged + own_in);
        break;
      default:
        break;
    }
  }
}

// The least time in which groups with these capacities (alike in both directions) can move a vector
// (or all blocks) of one byte such that every tier is crossed as few times as possible. Written
// apart from the code under test, in floats. The children of a group together send (n-1),
// all-reduce twice that, and what the group itself sends; a group sends at least its own data, or
// sum, and receives all that is not its own. (With more bytes than the fewest it can at times be
// faster: what a slow tier saves, a faster one would carry.)
double least_time(const TierTree& tree, const Request& request) {
  const bool all_reduce = request.collective == Collective::all_reduce;
  const bool one_owner =
      request.collective == Collective::broadcast || request.collective == Collective::reduce;
  const auto own = [&](const Group& g) {
    if (all_reduce) return 1.0;
    if (one_owner) return request.root >= g.first && request.root < g.first + g.size ? 1.0 : 0.0;
    return static_cast<double>(g.size) / tree.ranks();
  };
  const auto feasible = [&](double time) {
    std::vector<double> most(tree.groups.size());
    for (size_t g = tree.groups.size(); g-- > 0;) {
      const Group& group = tree.groups[g];
      most[g] = g == 0 ? 1e30 : time * static_cast<double>(group.egress.bytes_per_s);
      if (g > 0 && !all_reduce && most[g] < 1 - own(group)) return false;
      double sum = -(all_reduce ? 2.0 : 1.0) * (group.children - 1);
      for (int c = group.first_child; c < group.first_child + group.children; c++)
        sum += most[static_cast<size_t>(c)];
      if (group.children > 0) most[g] = std::min(most[g], sum);
      if (most[g] < (g == 0 ? 0 : own(group) - 1e-12)) return false;
    }
    return true;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 200; i++) (feasible((low + high) / 2) ? high : low) = (low + high) / 2;
  return high;
}

class TieredBytes : public ::testing::TestWithParam<Collective> {};

TEST_P(TieredBytes, AreTheFewestPerTierAndTheLeastForTheBusiestGroup) {
  std::mt19937_64 random(sennit_test::seed());
  for (int round = 0; round < kRounds; round++) {
    const int ranks = 2 + static_cast<int>(random() % (round < kRounds * 3 / 4 ? 20 : 63));
    TierTree tree = random_tree(random, ranks);
    for (size_t g = 1; g < tree.groups.size(); g++)
      tree.groups[g].ingress =
          tree.groups[g].egress = {(1 + random() % 20) * 10'000'000, Provenance::declared};
    Request request = request_of(GetParam(), uint64_t{1} << 34, random() % 2 == 0);
    request.type = DataType::uint8;
    request.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    const auto blueprint = tiered().prepare(tree, request, {});
    const Verdict verdict = verify(tree, request, *blueprint);
    ASSERT_TRUE(verdict.correct) << verdict.error << " round " << round << "\n" << tree.to_text();
    expect_fewest_units(tree, request, verdict);
    const double time = busiest(tree, request, verdict);
    const double least = least_time(tree, request);
    EXPECT_LE(time, least * (1 + 1e-5)) << "round " << round << "\n" << tree.to_text();
    const Bound bound = lower_bound(request, tree);
    ASSERT_TRUE(bound.known);
    EXPECT_GE(time * payload_bytes(request, ranks) * 1e9,
              static_cast<double>(bound.time_ns) * (1 - 1e-5));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, TieredBytes,
                         ::testing::Values(Collective::all_reduce, Collective::all_gather,
                                           Collective::reduce_scatter, Collective::broadcast,
                                           Collective::reduce),
                         [](const auto& test) { return std::string(name(test.param)); });

// Racks of 1, 2, 3 and 2 hosts whose uplinks are a fifth of their hosts' rates.
TierTree unequal_racks() {
  TierTree tree;
  tree.groups.resize(1);
  tree.groups[0].tier = 2;
  const std::vector<int> hosts{1, 2, 3, 2};
  tree.groups[0].first_child = 1;
  tree.groups[0].children = 4;
  for (const int h : hosts) {
    Group rack;
    rack.tier = h == 1 ? 0 : 1;
    rack.egress = rack.ingress = {static_cast<uint64_t>(h) * 10'000'000, Provenance::declared};
    tree.groups.push_back(rack);
  }
  for (size_t r = 1; r <= 4; r++) {
    if (hosts[r - 1] == 1) continue;
    tree.groups[r].first_child = static_cast<int32_t>(tree.groups.size());
    tree.groups[r].children = hosts[r - 1];
    for (int h = 0; h < hosts[r - 1]; h++) {
      tree.groups.emplace_back();
      tree.groups.back().egress = tree.groups.back().ingress = {50'000'000, Provenance::declared};
    }
  }
  tree.tiers = {{"host"}, {"rack"}, {"root"}};
  tree.finish();
  return tree;
}

TEST(Tiered, UnequalRacksMeetTheBoundOf1600Milliseconds) {
  const TierTree tree = unequal_racks();
  ASSERT_EQ(tree.check(), "");
  Request request = request_of(Collective::all_reduce, 4'000'000);
  const auto blueprint = tiered().prepare(tree, request, {});
  const Verdict verdict = verify(tree, request, *blueprint);
  ASSERT_TRUE(verdict.correct) << verdict.error;
  EXPECT_DOUBLE_EQ(busiest(tree, request, verdict) * 16e6, 1.6);
  EXPECT_EQ(verdict.egress_units[1], kUnits);  // the rack of one host owns nothing
  const Estimate estimate = tiered().estimate(tree, request, {}, {});
  EXPECT_EQ(*std::max_element(estimate.tier_ns.begin(), estimate.tier_ns.end()), 1'600'000'000u);
}

TEST(Tiered, EqualGroupsGetEqualSharesExactly) {
  for (const Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const TierTree tree = TierTree::uniform({3, 2, 4}, {100, 300, 200});
    const Request request = request_of(c, 1 << 20);
    const auto blueprint = tiered().prepare(tree, request, {});
    const Verdict verdict = verify(tree, request, *blueprint);
    ASSERT_TRUE(verdict.correct) << verdict.error;
    for (size_t g = 1; g < tree.groups.size(); g++) {
      const Group& group = tree.groups[g];
      const size_t like = group.tier == 2 ? 1 : group.tier == 1 ? 4 : 10;
      ASSERT_EQ(group.tier, tree.groups[like].tier);
      EXPECT_EQ(verdict.egress_units[g], verdict.egress_units[like]);
      EXPECT_EQ(verdict.ingress_units[g], verdict.ingress_units[like]);
    }
  }
}

// The rates of hosts are no less than those above: every collective then meets the lower bound
// itself.
TEST(Tiered, MeetsTheLowerBoundOnOversubscribedTrees) {
  for (const TierTree& tree :
       {unequal_racks(), TierTree::uniform({2, 4}, {28'625'000, 50'000'000}),
        TierTree::uniform({3, 3}, {30, 50}), TierTree::uniform({2, 3, 2}, {40, 60, 50}),
        TierTree::uniform({8}, {50})})
    for (const Collective c :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::reduce}) {
      Request request = request_of(c, uint64_t{1} << 34);
      request.root = 1;
      const auto blueprint = tiered().prepare(tree, request, {});
      const Verdict verdict = verify(tree, request, *blueprint);
      ASSERT_TRUE(verdict.correct) << verdict.error;
      const double time =
          busiest(tree, request, verdict) * payload_bytes(request, tree.ranks()) * 1e9;
      EXPECT_LE(time, static_cast<double>(lower_bound(request, tree).time_ns) * (1 + 1e-6))
          << name(c) << "\n"
          << tree.to_text();
    }
}

// Rank i of a group talks to rank i of the groups like it, so that traffic stays on home planes.
// Cut by 2, three racks would be two and then one more, which sends twice what the others do.
TEST(Tiered, WhatRadixTwoCannotCutEvenlyIsOneStage) {
  const TierTree tree =
      TierTree::uniform(std::vector<int>{2, 2, 12}, std::vector<uint64_t>{100, 100, 100});
  Request request;
  request.count = 48'000;
  Parameters by_two;
  by_two.radices = {2};
  const auto blueprint = find_algorithm("tiered")->prepare(tree, request, by_two);
  const size_t steps = blueprint->program(0).steps.size();
  for (int position = 1; position < tree.ranks(); position++)
    EXPECT_EQ(blueprint->program(position).steps.size(), steps) << "position " << position;
}

// The root adds up what each of the others sends it, and each sends something else. What that takes
// is in proportion to them: by their square this would not end within minutes.
TEST(Tiered, ManyPeersAreNoSquareOfWork) {
  const TierTree tree = synthetic_tree("racks=2,524286").value();
  const Request request = request_of(Collective::reduce, 1 << 18);
  const auto blueprint = tiered().prepare(tree, request, {});
  const Program program = blueprint->program(0);
  EXPECT_EQ(std::ranges::count(program.steps, StepKind::recv, &Step::kind), tree.ranks() - 1);
}

TEST(Tiered, EqualGroupsAreAligned) {
  const TierTree tree = TierTree::uniform({3, 2, 4});
  for (const Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const Request request = request_of(c, 1 << 20);
    const auto blueprint = tiered().prepare(tree, request, {});
    for (int r = 0; r < tree.ranks(); r++) {
      const Program program = blueprint->program(r);
      for (const Step& s : program.steps) {
        const int unit = s.tier == 2 ? 8 : s.tier == 1 ? 4 : 1;
        EXPECT_EQ(std::max(0, s.peer) % unit, s.peer < 0 ? 0 : r % unit) << name(c) << " " << r;
      }
    }
  }
}

TEST(Tiered, ProgramsOf2By4ReadAsWritten) {
  const TierTree tree = TierTree::uniform({2, 4});
  std::string text;
  for (const Collective c : {Collective::all_reduce, Collective::reduce_scatter,
                             Collective::all_gather, Collective::broadcast, Collective::barrier}) {
    Request request = request_of(c, 1 << 20);
    request.root = 5;
    text += std::string(name(c)) + "\n" +
            tiered().prepare(tree, request, {})->program(5).to_text() + "\n";
  }
  std::ifstream file(SENNIT_SOURCE_DIR "/tests/data/tiered_2x4_position5.txt");
  const std::string want{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, want)
      << "if this change is wanted, replace tests/data/tiered_2x4_position5.txt by:\n"
      << text;
}

}  // namespace
}  // namespace sennit
