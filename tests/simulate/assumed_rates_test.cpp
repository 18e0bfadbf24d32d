// assumed_rates_test.cpp: what is planned where the fabric does not say what its uplinks carry, or
// nothing but its shape, is nearly as fast on the real fabric as what is planned for that one.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/core.h>

#include "cost/rates.hpp"
#include "plan/planner.hpp"
#include "schedule/layout.hpp"
#include "simulate/simulate.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

// A fabric, and what a job knows of its rates.
struct Case {
  const char* fabric;
  uint64_t post_ns;
  bool hosts_known;
};

TierTree forgetting(TierTree tree, bool hosts_known) {
  for (size_t g = 1; g < tree.groups.size(); g++) {
    Group& group = tree.groups[g];
    const bool one_host = static_cast<int>(group.tier) <= lowest_network_tier(tree);
    if (!one_host || !hosts_known) group.egress = group.ingress = {};
  }
  tree.finish();
  return tree;
}

// In place, where the size of all ranks' data together is `bytes`.
Request request_of(Collective collective, uint64_t bytes, int ranks) {
  Request request;
  request.collective = collective;
  const bool one_vector = collective == Collective::all_reduce ||
                          collective == Collective::broadcast || collective == Collective::reduce;
  request.count =
      bytes / type_bytes(request.type) / (one_vector ? 1 : static_cast<uint64_t>(ranks));
  if (has_root(collective)) request.root = ranks / 2;
  request.in_place = true;
  return request;
}

// Of the first few candidates, which are the fastest by the planner.
uint64_t best_ns(const TierTree& tree, const Request& request, const PlanOptions& options,
                 const SimulateOptions& simulation) {
  constexpr size_t kTried = 4;
  Result<Plan> plan = make_plan(request, tree, options);
  uint64_t best = ~uint64_t{0};
  for (size_t i = 0; i < std::min(kTried, plan->candidates.size()); i++) {
    choose(request, tree, i, &*plan);
    best = std::min(best, simulate(tree, request, *plan, simulation)->time_ns);
  }
  return best;
}

TEST(AssumedRates, ChoicesAreNearlyThoseOfWhoKnows) {
  std::vector<double> slower;
  for (const Case& known :
       {Case{"racks=2x4;nic=50MB/s;oversubscription=7", 2'000, false},
        Case{"racks=2x4;nic=50MB/s;oversubscription=7", 2'000, true},
        Case{"racks=1,2,3,2;nic=50MB/s;oversubscription=5", 2'000, false},
        Case{"racks=1,2,3,2;nic=50MB/s;oversubscription=5", 2'000, true},
        Case{"shape=2x2x2;nic=50MB/s;oversubscription=2,4", 2'000, false},
        Case{"racks=2x4;nic=50GB/s;oversubscription=4;wire=infiniband", kRdmaPostNs, true},
        Case{"racks=3x3;nic=12.5GB/s;oversubscription=2;wire=infiniband", kRdmaPostNs, true},
        Case{"racks=4x2;nic=50GB/s;oversubscription=7;ranks=2;local=100GB/s;wire=infiniband",
             kRdmaPostNs, true},
        Case{"shape=2x2x4;nic=12.5GB/s;oversubscription=2,4;wire=infiniband", kRdmaPostNs, true}}) {
    const TierTree tree = *synthetic_tree(known.fabric);
    const TierTree told = forgetting(tree, known.hosts_known);
    PlanOptions options;
    options.cost.post_ns = known.post_ns;
    SimulateOptions simulation;
    simulation.cost = options.cost;
    simulation.queues = true;
    for (int c = 0; c < static_cast<int>(Collective::barrier); c++)
      for (const uint64_t bytes : {1u << 20, 8u << 20}) {
        const Request request = request_of(static_cast<Collective>(c), bytes, tree.ranks());
        const Result<Plan> plan = make_plan(request, told, options);
        ASSERT_TRUE(plan.ok()) << plan.status().text();
        const auto schedule =
            find_algorithm(plan->algorithm)->prepare(told, request, plan->parameters);
        const Result<SimulatedTime> time =
            simulate(tree, request, *schedule, plan->parameters.chunks, simulation);
        ASSERT_TRUE(time.ok()) << time.status().text();
        slower.push_back(static_cast<double>(time->time_ns) /
                         static_cast<double>(best_ns(tree, request, options, simulation)));
        EXPECT_LE(slower.back(), 2)
            << name(request.collective) << " of " << bytes << " bytes on " << known.fabric
            << (known.hosts_known ? ", of which the hosts' rates are known: " : ", shape alone: ")
            << plan->algorithm;
      }
  }
  double logarithms = 0;
  for (const double by : slower) logarithms += std::log(by);
  const double mean = std::exp(logarithms / static_cast<double>(slower.size()));
  fmt::print("{} choices, {:.3f} times as long in the mean, {:.2f} at worst\n", slower.size(), mean,
             *std::ranges::max_element(slower));
  EXPECT_LE(mean, 1.04);
}

}  // namespace
}  // namespace sennit
