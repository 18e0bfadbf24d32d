// excess_test.cpp: how much longer than they should edges and calls took, held against what was
// before, against the simulator, and against one another.
// ctest not-under-tsan: it has one thread
#include "diagnose/excess.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace sennit::diagnose {
namespace {

constexpr int kRanks = 4;
constexpr double kNear = 1e-9;
constexpr uint64_t kBytes = 1 << 20;
constexpr double kServiceNs = 1e7, kCallNs = 3e7;

// One call around a ring. times[i]: how many times as long as kServiceNs the edge from rank i took.
ObservedPlan observed_ring(const std::vector<double>& times, double call = 1,
                           uint64_t bytes = kBytes) {
  ObservedPlan observed;
  std::vector<EdgeTime> edges;
  for (int rank = 0; rank < kRanks; rank++)
    edges.push_back(
        {rank, (rank + 1) % kRanks, bytes, times[static_cast<size_t>(rank)] * kServiceNs, {}});
  observed.calls = {0};
  observed.time_ns = {call * kCallNs};
  observed.edges = {std::make_shared<const std::vector<EdgeTime>>(std::move(edges))};
  return observed;
}

std::map<std::pair<int, int>, double> all_as_they_should() {
  std::map<std::pair<int, int>, double> service_ns;
  for (int rank = 0; rank < kRanks; rank++) service_ns[{rank, (rank + 1) % kRanks}] = kServiceNs;
  return service_ns;
}

// What it needs as long as it lives.
struct Measured {
  explicit Measured(ObservedPlan seen, ExpectedPlan plan = {})
      : observed(std::move(seen)), expected(std::move(plan)) {}
  double of(size_t edge) const { return excess.of(excess.edges()[edge]); }

  const TierTree tree = TierTree::flat(kRanks);
  const ObservedPlan observed;
  const ExpectedPlan expected;
  const LinkTraffic traffic{tree, observed};
  const Excess excess{tree, expected, observed, traffic};
};

TEST(Excess, IsHeldAgainstWhatWasBefore) {
  ObservedPlan observed = observed_ring({1, 2, 1, 0.5}, 1.5);
  observed.well_service_ns = all_as_they_should();
  observed.well_ns = kCallNs;
  const Measured measured(observed);
  EXPECT_TRUE(measured.excess.known_before());
  EXPECT_TRUE(measured.excess.absolute());
  ASSERT_EQ(measured.excess.edges().size(), 4u);
  EXPECT_NEAR(measured.of(0), 0, kNear);
  EXPECT_NEAR(measured.of(1), std::log(2), kNear);
  EXPECT_NEAR(measured.of(3), 0, kNear) << "what is faster says nothing";
  EXPECT_NEAR(measured.excess.call_excess(), std::log(1.5), kNear);
  EXPECT_NEAR(measured.excess.of_call(), std::log(1.5), kNear);
  const Excess::Edge& slow = measured.excess.edges()[1];
  EXPECT_NEAR(measured.excess.beyond_call(slow), std::log(2 / 1.5), kNear);
  EXPECT_NEAR(measured.excess.of_all(), slow.weight * std::log(2), kNear * slow.weight);
  EXPECT_NEAR(measured.excess.all_beyond_call(), slow.weight * std::log(2 / 1.5),
              kNear * slow.weight);
}

// What every tier is slower by is no link's.
TEST(Excess, IsHeldAgainstTheSimulatorButForWhatIsCommon) {
  const Measured measured(observed_ring({1.3, 2.6, 1.3, 1.3}, 1.3),
                          {all_as_they_should(), kCallNs, 0});
  EXPECT_FALSE(measured.excess.known_before());
  EXPECT_TRUE(measured.excess.absolute());
  EXPECT_EQ(measured.excess.well_ns(), kCallNs);
  ASSERT_EQ(measured.excess.edges().size(), 4u);
  EXPECT_NEAR(measured.excess.common(), std::log(1.3), kNear);
  EXPECT_NEAR(measured.of(0), 0, kNear);
  EXPECT_NEAR(measured.of(1), std::log(2), kNear);
  EXPECT_NEAR(measured.excess.of_call(), 0, kNear);
}

TEST(Excess, WithoutEitherEdgesAreHeldAgainstOneAnother) {
  const Measured measured(observed_ring({5, 5, 10, 5}));
  EXPECT_FALSE(measured.excess.absolute());
  EXPECT_EQ(measured.excess.well_ns(), 0);
  ASSERT_EQ(measured.excess.edges().size(), 4u);
  EXPECT_NEAR(measured.of(0), 0, kNear);
  EXPECT_NEAR(measured.of(2), std::log(2), kNear);
}

// Of few bytes an edge's time is latency, unless it should take long.
TEST(Excess, FewBytesSayNothing) {
  const uint64_t few = kLeastEdgeBytes - 1;
  EXPECT_TRUE(Measured(observed_ring({1, 1, 9, 1}, 1, few)).excess.edges().empty());
  ObservedPlan observed = observed_ring({1, 1, 9, 1}, 1, few);
  observed.well_service_ns = all_as_they_should();
  EXPECT_EQ(Measured(observed).excess.edges().size(), 4u);
}

// The deviation of the mean: of one call nothing is known.
TEST(Excess, CallsThatDifferTellWhatIsChance) {
  ObservedPlan observed = observed_ring({1, 1, 1, 1});
  observed.well_service_ns = all_as_they_should();
  EXPECT_EQ(Measured(observed).excess.edges()[0].chance, 0);
  const double up = std::exp(0.1), down = std::exp(-0.1);
  for (const double other : {up, down}) {
    observed.calls.push_back(static_cast<uint32_t>(observed.calls.size()));
    observed.time_ns.push_back(kCallNs);
    observed.edges.push_back(observed_ring({1, other, 1, 1}).edges[0]);
  }
  const Measured measured(observed);
  EXPECT_NEAR(measured.excess.edges()[0].chance, 0, kNear);
  EXPECT_NEAR(measured.excess.edges()[1].chance, 0.1 / std::sqrt(3), kNear);
}

}  // namespace
}  // namespace sennit::diagnose
