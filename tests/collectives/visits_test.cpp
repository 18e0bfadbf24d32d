// visits_test.cpp: the order in which ranks visit one another.
//
// ctest not-under-tsan: it has one thread
#include "collectives/visits.hpp"

#include <set>

#include <gtest/gtest.h>

#include "collectives/algorithm.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/source.hpp"
#include "verify/verify.hpp"

namespace sennit {
namespace {

constexpr const char* kEqual[] = {"hosts=7", "racks=2x4", "racks=3x3;ranks=2", "pods=2x3x4;ranks=2",
                                  "racks=4x1"};
constexpr const char* kUnequal[] = {"racks=1,2,3,2", "shape=(1,2),2x(3)", "shape=2x(1,3)"};

// In every turn everybody is visited once, and over all turns everybody by everybody.
TEST(Visits, EveryTurnIsAPermutation) {
  for (const auto& specs : {std::span(kEqual).first(5), std::span(kUnequal).first(3)})
    for (const char* spec : specs) {
      SCOPED_TRACE(spec);
      const TierTree tree = synthetic_tree(spec).value();
      const Visits visits(tree);
      std::set<std::pair<int, int>> met;
      for (int turn = 0; turn < tree.ranks(); turn++) {
        std::set<int> visited;
        for (int p = 0; p < tree.ranks(); p++) {
          const int to = visits.to(p, turn);
          EXPECT_EQ(visits.from(to, turn), p);
          EXPECT_EQ(to == p, turn == 0);
          visited.insert(to);
          met.emplace(p, to);
        }
        EXPECT_EQ(visited.size(), static_cast<size_t>(tree.ranks()));
      }
      EXPECT_EQ(met.size(), static_cast<size_t>(tree.ranks()) * static_cast<size_t>(tree.ranks()));
    }
}

// In one turn all ranks cross the same tier, and turning the tree turns the order.
TEST(Visits, EqualGroupsTurn) {
  for (const char* spec : kEqual) {
    SCOPED_TRACE(spec);
    const TierTree tree = synthetic_tree(spec).value();
    const Visits visits(tree);
    EXPECT_TRUE(visits.turns());
    for (int turn = 1; turn < tree.ranks(); turn++)
      for (int p = 0; p < tree.ranks(); p++) {
        EXPECT_EQ(tree.crossing_tier(p, visits.to(p, turn)),
                  tree.crossing_tier(0, visits.to(0, turn)));
        for (int by = 0; by < tree.ranks(); by++)
          EXPECT_EQ(visits.to(visits.to(p, by), turn), visits.to(visits.to(p, turn), by));
      }
  }
  for (const char* spec : kUnequal)
    EXPECT_FALSE(Visits(synthetic_tree(spec).value()).turns()) << spec;
}

// Two pods of four ranks each, in racks of two: one rack is two hosts, another is one host of two
// ranks. All sizes are equal, and the groups of the hosts' tier are not.
TEST(Visits, EqualSizesOfUnequalTiersDoNotTurn) {
  const Fabric fabric =
      parse_fabric(
          "switch core\nswitch pod[0-1] tier pod\nswitch rack[0-3] tier rack\nhost h[0-5]\n"
          "link pod[0-1] core 1GB/s\nlink rack[0-1] pod0 1GB/s\nlink rack[2-3] pod1 1GB/s\n"
          "link h[0-1] rack0 1GB/s\nlink h[2-3] rack1 1GB/s\nlink h4 rack2 1GB/s\n"
          "link h5 rack3 1GB/s\n",
          "f")
          .value();
  std::vector<Placement> ranks;
  for (const char* host : {"h0", "h1", "h2", "h3", "h4", "h4", "h5", "h5"})
    ranks.emplace_back().host = host;
  const TierTree tree = contract(fabric, ranks).value();
  EXPECT_FALSE(Visits(tree).turns()) << tree.to_text();
  Request request;
  request.collective = Collective::all_to_all;
  request.count = 100;
  for (const Algorithm* algorithm : algorithms()) {
    if (!algorithm->applies(tree, request)) continue;
    for (const Parameters& parameters : algorithm->candidates(tree, request)) {
      const Verdict verdict = verify(tree, request, *algorithm->prepare(tree, request, parameters));
      EXPECT_TRUE(verdict.correct)
          << algorithm->name() << " " << parameters.to_text() << ": " << verdict.error;
    }
  }
}

}  // namespace
}  // namespace sennit
