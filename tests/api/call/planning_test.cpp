// planning_test.cpp: calls on a device's memory are planned by what that costs.
//
// ctest not-under-tsan: it has one thread
#include "api/call/planning.hpp"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "cost/rates.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

using Memory = Planning::Memory;

constexpr const char* kTree = "racks=2x4;nic=100Gbit/s;oversubscription=2;latency=2us";

Request request_of(Collective collective, uint64_t bytes) {
  Request request;
  request.collective = collective;
  request.type = DataType::float32;
  request.count = bytes / type_bytes(request.type);
  return request;
}

CostModel device_cost() { return device_memory_cost(PlanOptions().cost); }

uint64_t on_device_ns(const TierTree& tree, const Request& request, const Plan& plan) {
  PlanOptions options;
  options.cost = device_cost();
  return predicted_ns(request, tree, options, plan.algorithm, plan.parameters);
}

TEST(Planning, OnADeviceByWhatCopiesCostThere) {
  const PlanOptions options;
  const TierTree tree = synthetic_tree(kTree).value();
  const Planning planning(tree, options, true, {});
  size_t differ = 0;
  for (const Collective collective :
       {Collective::all_gather, Collective::broadcast, Collective::all_to_all, Collective::gather})
    for (uint64_t bytes = 8; bytes <= 64 << 20; bytes *= 2) {
      const Request request = request_of(collective, bytes);
      const Plan host = planning.plan(request, Memory::host).value(),
                 device = planning.plan(request, Memory::device).value();
      const std::string what = std::string(name(collective)) + " of " + std::to_string(bytes);
      EXPECT_GE(device.predicted_ns, host.predicted_ns + 2 * device_cost().device_command_ns)
          << what;
      EXPECT_LE(device.predicted_ns, on_device_ns(tree, request, host)) << what;
      differ += host.algorithm != device.algorithm || !(host.parameters == device.parameters);
    }
  EXPECT_GT(differ, 0u);
}

// So that they have the host's bits.
TEST(Planning, SumsOnADeviceHaveTheHostsPlanAndTheirOwnTime) {
  const PlanOptions options;
  const TierTree tree = synthetic_tree(kTree).value();
  const Planning planning(tree, options, true, {});
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter})
    for (uint64_t bytes = 8; bytes <= 64 << 20; bytes *= 2) {
      const Request request = request_of(collective, bytes);
      const Plan host = planning.plan(request, Memory::host).value(),
                 device = planning.plan(request, Memory::device).value();
      EXPECT_EQ(device.algorithm, host.algorithm) << name(collective) << " of " << bytes;
      EXPECT_EQ(device.parameters, host.parameters) << name(collective) << " of " << bytes;
      EXPECT_NE(device.hash, host.hash) << "each is recorded with its time";
      EXPECT_EQ(device.predicted_ns, on_device_ns(tree, request, host));
      EXPECT_NE(device.predicted_ns, host.predicted_ns);
    }
}

// A time that was measured on the host's memory says nothing of copies on a device.
TEST(Planning, WhatWasMeasuredOnTheHostDecidesSumsAlone) {
  const PlanOptions options;
  const TierTree tree = TierTree::flat(4);
  const auto algorithms = [&](Collective collective) {
    const Request request = request_of(collective, 1024);
    Tuning tuning;
    tuning.set(tree.fingerprint(), request, tree.ranks(), {"ring", Parameters{}, 1, 1});
    const Planning planning(tree, options, true, tuning);
    return std::pair(planning.plan(request, Memory::host).value().algorithm,
                     planning.plan(request, Memory::device).value().algorithm);
  };
  const auto [gather, gather_on_device] = algorithms(Collective::all_gather);
  EXPECT_EQ(gather, "ring");
  EXPECT_NE(gather_on_device, "ring");
  const auto [sum, sum_on_device] = algorithms(Collective::all_reduce);
  EXPECT_EQ(sum, "ring");
  EXPECT_EQ(sum_on_device, "ring");
}

}  // namespace
}  // namespace sennit
