// expected_test.cpp: what edges should take is the same whether one rank is simulated for all that
// do the same, or every rank; and of a long ring whether messages are simulated or computed.
// ctest not-under-tsan: it has one thread
#include "diagnose/expected.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "diagnose/edges.hpp"
#include "plan/planner.hpp"
#include "simulate/simulate.hpp"
#include "topology/source.hpp"

namespace sennit::diagnose {
namespace {

using Edge = std::pair<int, int>;

std::map<Edge, double> of_every_rank(const TierTree& tree, const Request& request,
                                     const Blueprint& blueprint, uint32_t chunks) {
  std::map<Edge, std::vector<SimulatedMessage>> messages;
  SimulateOptions options;
  options.symmetry = false;
  options.observe = [&](const SimulatedMessage& message) {
    messages[{message.from, message.to}].push_back(message);
  };
  EXPECT_TRUE(simulate(tree, request, blueprint, chunks, options).ok());
  std::map<Edge, double> edges;
  for (auto& [edge, of_edge] : messages) {
    std::stable_sort(of_edge.begin(), of_edge.end(),
                     [](const auto& a, const auto& b) { return a.delivered_ns < b.delivered_ns; });
    Service service;
    for (const SimulatedMessage& message : of_edge)
      service.add(static_cast<double>(message.begin_ns), static_cast<double>(message.delivered_ns),
                  message.bytes);
    edges[edge] = service.of(edge).service_ns;
  }
  return edges;
}

TEST(ExpectedEdges, AreThoseOfEveryRank) {
  for (const char* const spec :
       {"racks=4x4;nic=400Mbit/s;oversubscription=4",
        "racks=3,4,2;nic=400Mbit/s;oversubscription=4", "racks=8;nic=400Mbit/s",
        "racks=2x2x3;nic=400Mbit/s;oversubscription=2,3"})
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      const TierTree tree = *synthetic_tree(spec);
      Request request;
      request.collective = collective;
      request.count = 1 << 20;
      const Plan plan = *make_plan(request, tree, {});
      const std::unique_ptr<Blueprint> blueprint =
          find_algorithm(plan.algorithm)->prepare(tree, request, plan.parameters);
      constexpr uint32_t kChunks = 4;
      const ExpectedPlan expected = expected_edges(tree, request, *blueprint, kChunks, true);
      const std::map<Edge, double> every = of_every_rank(tree, request, *blueprint, kChunks);
      ASSERT_FALSE(every.empty());
      EXPECT_EQ(expected.service_ns.size(), every.size()) << spec << ", " << name(collective);
      for (const auto& [edge, ns] : every) {
        ASSERT_TRUE(expected.service_ns.contains(edge))
            << spec << ": " << edge.first << " > " << edge.second;
        EXPECT_NEAR(expected.service_ns.at(edge) / ns, 1, 0.02)
            << spec << ", " << name(collective) << ": " << edge.first << " > " << edge.second;
      }
    }
}

// Of what goes around a ring in many pieces each step waits for the one before, and a grain that is
// too coarse adds up.
TEST(ExpectedEdges, OfManyStepsTakeNoLongerForTheGrain) {
  const TierTree tree = *synthetic_tree("racks=4x7;nic=400Mbit/s;oversubscription=2");
  PlanNote plan;
  plan.request.collective = Collective::all_reduce;
  plan.request.count = 4 << 20;
  plan.algorithm = "ring";
  plan.parameters.chunks = 16;
  const std::unique_ptr<Blueprint> blueprint =
      find_algorithm("ring")->prepare(tree, plan.request, plan.parameters);
  const double exact_ns =
      expected_edges(tree, plan.request, *blueprint, plan.parameters.chunks, false).time_ns;
  EXPECT_NEAR(expected_of(tree, plan, *blueprint, exact_ns).time_ns / exact_ns, 1, 0.02);
}

// The formula is for rings of which simulating all messages would take minutes. Where latency
// counts it may expect too much: it does not know which pieces are on their way at the same time.
TEST(ExpectedEdges, OfALongRingAreThoseOfItsMessages) {
  const std::pair<const char*, double> kTrees[] = {
      {"racks=16x5;nic=400Mbit/s;oversubscription=4", 1.03},
      {"racks=16,32,24;nic=400Mbit/s;oversubscription=20", 1.03},
      {"racks=16x5;nic=25Gbit/s;oversubscription=4", 1.15}};
  for (const auto& [spec, most] : kTrees)
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
      const TierTree tree = *synthetic_tree(spec);
      PlanNote plan;
      plan.request.collective = collective;
      plan.request.count = collective == Collective::all_reduce ? 16 << 20 : 200'000;
      plan.algorithm = "ring";
      plan.parameters.chunks = 2;
      const std::unique_ptr<Blueprint> blueprint =
          find_algorithm("ring")->prepare(tree, plan.request, plan.parameters);
      const ExpectedPlan computed = expected_of(tree, plan, *blueprint, 0);
      const ExpectedPlan simulated =
          expected_edges(tree, plan.request, *blueprint, plan.parameters.chunks, false);
      constexpr double kLeast = 0.97;
      EXPECT_GT(computed.time_ns / simulated.time_ns, kLeast) << spec << name(collective);
      EXPECT_LT(computed.time_ns / simulated.time_ns, most) << spec << name(collective);
      ASSERT_EQ(computed.service_ns.size(), simulated.service_ns.size());
      for (const auto& [edge, ns] : simulated.service_ns) {
        const double ratio = computed.service_ns.at(edge) / ns;
        EXPECT_TRUE(ratio > kLeast && ratio < most)
            << ratio << " " << spec << ", " << name(collective) << ": " << edge.first << " > "
            << edge.second;
      }
    }
}

}  // namespace
}  // namespace sennit::diagnose
