// rates_test.cpp: what is assumed of latencies and rates that no fabric declares.
//
// ctest not-under-tsan: it has one thread
#include "cost/rates.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topology/fabric/fabric.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

TierTree tree(const char* spec) { return synthetic_tree(spec).value(); }

// The first.
int group_of_tier(const TierTree& tree, std::string_view tier) {
  for (size_t g = 0; g < tree.groups.size(); g++)
    if (tree.tiers[tree.groups[g].tier].name == tier) return static_cast<int>(g);
  ADD_FAILURE() << "no group of tier " << tier;
  return 0;
}

TEST(Latency, WhatIsDeclaredStands) {
  const TierTree declared = tree("racks=2x2;latency=5us;wire=infiniband");
  for (const Way way : {Way::as_wired, Way::sockets, Way::rdma}) {
    const CostModel cost{.way = way};
    EXPECT_EQ(latency_source(declared, 0, cost), LatencySource::declared);
    EXPECT_EQ(planning_latency_ns(declared, 0, cost), 5'000u);
  }
}

TEST(Latency, ComesFromTheKindOfWire) {
  const CostModel cost;
  for (const char* wire : {";wire=infiniband", ";wire=roce"}) {
    const TierTree wired = tree((std::string("racks=2x2;ranks=2") + wire).c_str());
    // through a rack's switch, and through two of them and the one above
    EXPECT_EQ(planning_latency_ns(wired, group_of_tier(wired, "rack"), cost), 1'700u);
    EXPECT_EQ(planning_latency_ns(wired, 0, cost), 2'100u);
    EXPECT_EQ(latency_source(wired, 0, cost), LatencySource::rdma);
    const int host = group_of_tier(wired, "host");
    EXPECT_EQ(latency_source(wired, host, cost), LatencySource::within_host);
    EXPECT_EQ(planning_latency_ns(wired, host, cost), cost.shared_memory_latency_ns);
  }
  for (const char* spec : {"racks=2x2", "racks=2x2;wire=ethernet"}) {
    EXPECT_EQ(latency_source(tree(spec), 0, cost), LatencySource::sockets) << spec;
    EXPECT_EQ(planning_latency_ns(tree(spec), 0, cost), cost.latency_ns) << spec;
  }
}

// A job knows what carries its messages, which may be sockets over InfiniBand.
TEST(Latency, TheWayGoesBeforeTheWire) {
  const CostModel sockets{.way = Way::sockets}, rdma{.way = Way::rdma};
  const TierTree wired = tree("racks=2x2;wire=infiniband"), unknown = tree("racks=2x2");
  EXPECT_EQ(planning_latency_ns(wired, 0, sockets), sockets.latency_ns);
  EXPECT_EQ(planning_latency_ns(unknown, 0, rdma), 2'100u);
}

TEST(Latency, ACalibrationScalesIt) {
  const TierTree wired = tree("racks=2x2;wire=infiniband");
  CostModel cost;
  cost.tiers.resize(wired.tiers.size());
  cost.tiers[wired.root().tier].latency_permille = 2'000;
  EXPECT_EQ(planning_latency_ns(wired, 0, cost), 4'200u);
}

// Twice the way's latency, declared or assumed; where receivers grant beforehand nothing.
TEST(Latency, OverRdmaALargeMessageAsksForItsReceive) {
  const TierTree wired = tree("racks=2x2;ranks=2;wire=infiniband"),
                 declared = tree("racks=2x2;latency=5us;wire=infiniband"),
                 unknown = tree("racks=2x2");
  EXPECT_EQ(asking_ns(wired, 0, {}), 2 * 2'100u);
  EXPECT_EQ(asking_ns(wired, group_of_tier(wired, "host"), {}), 0u);
  EXPECT_EQ(asking_ns(declared, 0, {}), 2 * 5'000u);
  EXPECT_EQ(asking_ns(declared, 0, {.way = Way::sockets}), 0u);
  EXPECT_EQ(asking_ns(unknown, 0, {}), 0u);
  EXPECT_EQ(asking_ns(unknown, 0, {.way = Way::rdma}), 2 * 2'100u);
  EXPECT_EQ(asking_ns(wired, 0, gpu_cost()), 0u);
  EXPECT_EQ(asking_ns(wired, 0, device_memory_cost({})), 2 * 2'100u) << "nobody commands a device";
}

// Also where it is declared, which says nothing of devices; and whatever was measured on the host.
TEST(Latency, OnADeviceHasACommandAtEitherEnd) {
  for (const char* spec : {"racks=2x2", "racks=2x2;latency=5us", "racks=1x1;ranks=4"}) {
    const TierTree any = tree(spec);
    CostModel host;
    host.tiers.resize(any.tiers.size());
    for (TierCost& tier : host.tiers) tier.latency_permille = 3'000;
    const CostModel device = device_memory_cost(host);
    EXPECT_EQ(planning_latency_ns(any, 0, device),
              planning_latency_ns(any, 0, host) + 2 * device.device_command_ns)
        << spec;
    EXPECT_GT(device.reduce_bytes_per_s, 50 * host.reduce_bytes_per_s);
  }
}

// By rank, in fabric order: what leaves the host that is it, or that it is on.
std::vector<uint64_t> hosts_send(const TierTree& tree) {
  const GroupRates rates = planning_rates(tree, {});
  std::vector<uint64_t> sent;
  for (int group : tree.leaf_of_position) {
    while (within_host(tree, tree.groups[static_cast<size_t>(group)].parent))
      group = tree.groups[static_cast<size_t>(group)].parent;
    sent.push_back(rates.egress[static_cast<size_t>(group)]);
  }
  return sent;
}

TEST(Rates, GroupsOfHostsCarryAQuarterOfWhatIsBelow) {
  const TierTree shape = tree("racks=2x8;nic=unknown");
  const auto rack = static_cast<size_t>(group_of_tier(shape, "rack"));
  const CostModel cost;
  EXPECT_EQ(planning_rates(shape, cost).egress[rack], 8 * cost.nic_bytes_per_s / 4);
  EXPECT_FALSE(host_rates_known(shape));
  const TierTree hosts = tree("racks=2x8;nic=50GB/s");
  EXPECT_EQ(planning_rates(hosts, cost).egress[rack], 8 * 50'000'000'000u / 4);
  EXPECT_TRUE(host_rates_known(hosts));
  EXPECT_FALSE(network_rates_known(hosts));
}

// What ranks of one host send to each other no fabric says, and no plan depends on it alone.
TEST(Rates, WithinHostsNothingHasToBeKnown) {
  const TierTree shared = tree("racks=2x4;ranks=2;nic=1GB/s;oversubscription=2");
  EXPECT_FALSE(shared.capacities_known());
  EXPECT_TRUE(host_rates_known(shared));
  EXPECT_TRUE(network_rates_known(shared));
}

TierTree contracted(const std::string& text, int hosts) {
  std::vector<Placement> ranks;
  for (int host = 0; host < hosts; host++) ranks.emplace_back().host = "h" + std::to_string(host);
  return contract(parse_fabric(text, "f").value(), ranks).value();
}

// The rack of one host is that host, whichever of the two rates is known.
TEST(Rates, AHostAloneInItsRackIsLikeTheOthers) {
  constexpr uint64_t kHost = 40'000'000'000 / 8;
  const std::string names = "host h[0-2]\nswitch a tier rack\nswitch b tier rack\nswitch c\n";
  const auto fabric = [&](const char* host, const char* uplink) {
    return names + "link h0 a " + host + "\nlink h[1-2] b " + host + "\nlink a c " + uplink +
           "\nlink b c " + uplink + "\n";
  };
  const std::vector<uint64_t> uplinks = hosts_send(contracted(fabric("40Gbit/s", "unknown"), 3));
  EXPECT_EQ(uplinks, (std::vector<uint64_t>{kHost / 4, kHost, kHost}));
  const std::vector<uint64_t> nics = hosts_send(contracted(fabric("unknown", "400Gbit/s"), 3));
  EXPECT_EQ(nics[1], CostModel().nic_bytes_per_s) << "the lone host's uplink is no NIC";
}

}  // namespace
}  // namespace sennit
