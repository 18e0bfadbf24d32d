// count_test.cpp: what is counted in closed form is what making the programs of all ranks comes to.
//
// ctest not-under-tsan: others try its threads as well
#include "simulate/count.hpp"

#include <iostream>
#include <random>

#include <gtest/gtest.h>

#include "collectives/algorithm.hpp"
#include "simulate/ranks.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

TierTree spec(const std::string& text) {
  const Result<Fabric> fabric = synthetic_fabric(text);
  EXPECT_TRUE(fabric.ok()) << fabric.status().text();
  const Result<TierTree> tree = contract(*fabric, ranks_on_all_hosts(*fabric, 0));
  EXPECT_TRUE(tree.ok()) << tree.status().text();
  return *tree;
}

// Ranks of a kind hold as much as each other, but for roundings.
void expect_kinds_stand_for_all(const TierTree& tree, const Request& request, const Plan& plan,
                                uint64_t expected) {
  const Algorithm* algorithm = find_algorithm(plan.algorithm);
  const std::optional<Counts> counts = algorithm->count(tree, request, plan.parameters);
  const auto blueprint = algorithm->prepare(tree, request, plan.parameters);
  const simulation::GroupCall call{&request, plan.parameters.chunks, blueprint.get(), {}};
  uint64_t most = 0;
  for (const int position : counts->kinds)
    most = std::max(most, simulation::scratch_bytes(call, blueprint->program(position)));
  EXPECT_NEAR(static_cast<double>(most), static_cast<double>(expected),
              0.02 * static_cast<double>(expected));
}

struct Closed {
  int settings = 0, counted = 0;  // in closed form; a barrier, which has no bytes, is no setting
};

// Every setting of an algorithm on one tree.
Closed count_all(const Algorithm& algorithm, const TierTree& tree, uint64_t bytes, bool in_place,
                 std::mt19937_64& random) {
  Closed closed;
  for (int c = 0; c < kCollectives - 1; c++) {
    Request request;
    request.collective = static_cast<Collective>(c);
    if (!algorithm.applies(tree, request)) continue;
    const auto ranks = static_cast<uint64_t>(tree.ranks());
    const bool vector = request.collective == Collective::all_reduce ||
                        request.collective == Collective::broadcast ||
                        request.collective == Collective::reduce;
    request.count =
        request.collective == Collective::barrier ? 0 : bytes / 4 / (vector ? 1 : ranks);
    request.in_place = in_place;
    if (has_root(request.collective)) request.root = static_cast<int>(random() % ranks);
    for (const Parameters& parameters : algorithm.candidates(tree, request)) {
      Plan plan;
      plan.algorithm = algorithm.name();
      plan.parameters = parameters;
      plan.parameters.chunks = 1 + static_cast<uint32_t>(random() % 10);
      SimulateOptions options;
      options.fluid = true;
      options.symmetry = false;  // which takes lengths that differ by a rounding as equal
      const Result<SimulatedTime> all = simulate(tree, request, plan, options);
      const Result<Counted> quick = count_programs(tree, request, plan, {});
      EXPECT_TRUE(all.ok() && quick.ok()) << all.status().text() << quick.status().text();
      closed.settings += request.collective == Collective::barrier ? 0 : 1;
      if (!all || !quick || !quick->closed_form) continue;
      closed.counted++;
      SCOPED_TRACE(plan.algorithm + " " + std::string(name(request.collective)) + " of " +
                   std::to_string(bytes) + (in_place ? " in place" : "") + ", root " +
                   std::to_string(request.root) + ", " + plan.parameters.to_text());
      EXPECT_EQ(quick->messages, all->messages);
      for (size_t tier = 0; tier < tree.tiers.size(); tier++)
        EXPECT_EQ(quick->tier_bytes[tier], all->tiers[tier].bytes) << tree.tiers[tier].name;
      EXPECT_EQ(quick->rounds, all->rounds);
      EXPECT_EQ(quick->scratch_bytes, all->scratch_bytes);
      if (bytes >= 1'000'000) expect_kinds_stand_for_all(tree, request, plan, all->scratch_bytes);
    }
  }
  return closed;
}

TEST(Count, IsWhatAllProgramsComeTo) {
  std::mt19937_64 random(sennit_test::seed());
  std::vector<std::string> fabrics = {
      "hosts=8;nic=10Gbit/s",
      "racks=2x4;nic=400Mbit/s;oversubscription=7",
      "racks=2,2,3,2;nic=400Mbit/s;oversubscription=5",
      "racks=3x3;nic=400Mbit/s;oversubscription=5",
      "racks=5,3,9,7;nic=10Gbit/s;oversubscription=3",
      "pods=2x4x4;nic=100Gbit/s;oversubscription=2,4",
      "racks=2x4;ranks=4;nic=100GB/s;local=150GB/s;oversubscription=4",
  };
  if (!sennit_test::kSanitized)
    fabrics.insert(fabrics.end(),
                   {"racks=8x8;nic=25Gbit/s;oversubscription=16",
                    "pods=(3x16),(12,4,20),(8,2x12,12);nic=50GB/s;oversubscription=1,7",
                    "pods=3x5x7;nic=50GB/s;oversubscription=1,7",
                    "pods=4x8x8;nic=200Gbit/s;oversubscription=3,2"});
  for (const std::string& text : fabrics) {
    SCOPED_TRACE(text);
    const TierTree tree = spec(text);
    for (const uint64_t bytes : {uint64_t{10'000}, uint64_t{1} << 30})
      EXPECT_GT(
          count_all(*find_algorithm("tiered"), tree, bytes, random() % 2 == 0, random).counted, 0);
    if (testing::Test::HasFailure()) return;
  }
}

// Also where a rank has a rack to itself, and where one that relays for nobody is in the larger
// rack.
TEST(Count, DirectAndAggregatedAreAlwaysInClosedForm) {
  std::mt19937_64 random(sennit_test::seed());
  for (const char* text : {"racks=2x4;nic=400Mbit/s;oversubscription=7",
                           "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5",
                           "racks=9,3;nic=10Gbit/s;oversubscription=3",
                           "pods=(3x4),(5,1,2),(2,2x3);nic=50GB/s;oversubscription=1,7",
                           "racks=2x4;ranks=4;nic=100GB/s;local=150GB/s;oversubscription=4"}) {
    SCOPED_TRACE(text);
    const TierTree tree = spec(text);
    for (const char* name : {"direct", "aggregated"})
      for (const uint64_t bytes : {uint64_t{10'000}, uint64_t{1} << 30})
        for (const bool in_place : {false, true}) {
          const Closed closed = count_all(*find_algorithm(name), tree, bytes, in_place, random);
          EXPECT_GT(closed.settings, 0) << name;
          EXPECT_EQ(closed.counted, closed.settings) << name;
        }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace sennit
