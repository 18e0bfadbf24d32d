// agreement_test.cpp: what ranks tell each other at the start survives the way, what is damaged is
// refused, and what all make of it is what it should be.
// ctest not-under-tsan: it has one thread
#include "api/start/agreement.hpp"

#include <gtest/gtest.h>

#include "cost/rates.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

// What it was encoded from is what is decoded, also after the bytes were cut or lengthened: that is
// an error.
template <typename Message>
Message there_and_back(const Message& message) {
  const Bytes bytes = message.encode();
  for (size_t length = 0; length < bytes.size(); length++)
    EXPECT_FALSE(Message::decode({bytes.data(), length}).ok()) << length << " of " << bytes.size();
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(Message::decode(longer).ok());
  Result<Message> decoded = Message::decode(bytes);
  EXPECT_TRUE(decoded.ok()) << decoded.status().text();
  return decoded ? *std::move(decoded) : Message();
}

TEST(Agreement, OptionsSurviveTheWay) {
  JobOptions options;
  options.algorithm = "tiered";
  options.chunk_bytes = uint64_t{1} << 40;
  options.eager_bytes = 4096;
  options.reproducible = true;
  options.probe = "again";
  options.tune = "1";
  options.concurrency_text = "3";
  JobOptions other = there_and_back(options);
  EXPECT_EQ(other.algorithm, "tiered");
  EXPECT_EQ(other.chunk_bytes, uint64_t{1} << 40);
  EXPECT_EQ(other.eager_bytes, 4096u);
  EXPECT_TRUE(other.reproducible);
  EXPECT_EQ(other.probe, "again");
  EXPECT_EQ(other.tune, "1");
  EXPECT_TRUE(other.check().ok());
  EXPECT_EQ(other.concurrency, (Concurrency{false, 3}));
}

TEST(Agreement, OptionsThatForceAnythingRuleOutTuning) {
  EXPECT_TRUE(JobOptions{}.may_tune());
  JobOptions forced;
  forced.chunk_bytes = 1;
  EXPECT_FALSE(forced.may_tune());
  forced = {};
  forced.reproducible = true;
  EXPECT_FALSE(forced.may_tune());
  forced = {};
  forced.algorithm = "tiered";
  EXPECT_FALSE(forced.may_tune());
  EXPECT_TRUE(forced.check().ok());
  forced.algorithm = "carrier_pigeon";
  EXPECT_FALSE(forced.check().ok());
  forced = {};
  forced.concurrency_text = "";
  EXPECT_FALSE(forced.check().ok());
}

Whereabouts at(const std::string& host, const std::string& machine, std::vector<int> cores) {
  return {{host, machine, std::move(cores)}, ""};
}

TEST(Agreement, HostsAreSharedAsAllSeeThem) {
  std::vector<Whereabouts> all = {at("a", "m", {0, 1}), at("b", "m", {2, 2}), at("a", "m", {0, 1}),
                                  at("b", "m", {2, 2}), at("a", "m", {0, 1})};
  for (Whereabouts& told : all) told = there_and_back(told);
  const Result<HostSharing> seen = share_hosts(all, 1);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->here.ranks, 2);
  EXPECT_EQ(seen->here.cores, 1);
  EXPECT_EQ(seen->machine.ranks, 5);
  EXPECT_EQ(seen->machine.cores, 3);
  EXPECT_FALSE(seen->core_each());
  EXPECT_TRUE(seen->one_machine);
  EXPECT_EQ(seen->crowding_permille, 1666u);  // five ranks on three cores
  EXPECT_EQ(seen->speakers(), (std::vector<int>{0, 1}));
  EXPECT_TRUE(seen->speaks_for_host(1));
  EXPECT_FALSE(seen->speaks_for_host(2));
  EXPECT_EQ(seen->speaker_for(4), 0);
  EXPECT_EQ(seen->speaker_for(3), 1);

  // Each host has a core for its rank, but it is the same one.
  const Result<HostSharing> namespaces =
      share_hosts({at("a", "m", {0, 0}), at("b", "m", {0, 0})}, 1);
  ASSERT_TRUE(namespaces.ok());
  EXPECT_EQ(namespaces->here.ranks, namespaces->here.cores);
  EXPECT_FALSE(namespaces->core_each());

  all[3].error = "rank 3 on host b: no descriptors";
  const Result<HostSharing> stopped =
      share_hosts({there_and_back(all[0]), all[1], all[2], all[3]}, 0);
  EXPECT_EQ(stopped.status().kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_EQ(stopped.status().text(), "rank 3 on host b: no descriptors");
}

TransportOffer offer(const std::string& host, const std::vector<std::string>& transports) {
  TransportOffer made;
  made.placement = {host, -1, "eth0"};
  for (const std::string& name : transports)
    made.addresses[name] = Bytes(name.size(), std::byte{0x5a});
  return made;
}

TEST(Agreement, AddressesComeByRankAndTransport) {
  const TransportOffer all = there_and_back(offer("a", {"shm", "tcp", "ucx"}));
  EXPECT_EQ(all.placement.host, "a");
  EXPECT_EQ(all.placement.numa, -1);
  EXPECT_EQ(all.placement.nic, "eth0");
  const std::vector<TransportOffer> offers = {all, there_and_back(offer("b", {"tcp"}))};
  const std::vector<std::string_view> mine = {"ucx", "tcp"};
  const auto addresses = addresses_of(offers, mine);
  ASSERT_EQ(addresses.size(), 2u);
  EXPECT_EQ(addresses[0],
            (std::vector<Bytes>{Bytes(3, std::byte{0x5a}), Bytes(3, std::byte{0x5a})}));
  EXPECT_EQ(addresses[1], (std::vector<Bytes>{Bytes{}, Bytes(3, std::byte{0x5a})}));
}

TEST(Agreement, HeadersCostWhatTheyCostWhereThatIsMost) {
  std::vector<TransportOffer> offers(3);
  CostModel cost;
  set_wire_cost(offers, &cost);
  EXPECT_EQ(cost, CostModel{.way = Way::sockets});
  offers[1].payload_permille = 940;
  offers[1].message_bytes = 90;
  offers[2].payload_permille = 990;
  offers[2].message_bytes = 120;
  set_wire_cost(offers, &cost);
  EXPECT_EQ(cost.goodput_permille, 940u);
  EXPECT_EQ(cost.message_bytes, 120u);
}

TEST(Agreement, MessagesCostWhatRdmaTakesIfAllHaveIt) {
  std::vector<TransportOffer> offers(2);
  offers[0].rdma = true;
  CostModel cost;
  set_wire_cost({offers[0], there_and_back(offers[1])}, &cost);
  EXPECT_EQ(cost.way, Way::sockets);
  EXPECT_EQ(cost.post_ns, CostModel{}.post_ns);
  set_wire_cost({offers[0], there_and_back(offers[0])}, &cost);
  EXPECT_EQ(cost.way, Way::rdma);
  EXPECT_EQ(cost.post_ns, kRdmaPostNs);
}

TEST(Agreement, OneRankWithoutTransportStopsAll) {
  std::vector<TransportOffer> offers = {offer("a", {"tcp"}), offer("b", {})};
  EXPECT_TRUE(check_offers(offers).ok());
  offers[1].error = "no transport could be started";
  const Status status = check_offers({offers[0], there_and_back(offers[1])});
  EXPECT_EQ(status.kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_EQ(status.text(), "rank 1 on host b: no transport could be started");
}

TEST(Agreement, WhatCannotBeSealedStaysWithinItsHost) {
  HostSharing hosts;
  hosts.host_of_rank = {"a", "a", "b"};
  const std::vector<std::string_view> open = {"glass"};
  std::vector<TransportOffer> offers = {offer("a", {"glass"}), offer("a", {"glass"}),
                                        offer("b", {"tcp"})};
  EXPECT_TRUE(check_sealed(offers, hosts, open).ok());
  offers = {offer("a", {"tcp"}), offer("a", {"glass"}), offer("b", {"glass"})};
  EXPECT_TRUE(check_sealed(offers, hosts, {}).ok());
  const Status status = check_sealed(offers, hosts, open);
  EXPECT_EQ(status.kind(), SENNIT_REFUSED);
  EXPECT_NE(status.text().find("glass would carry what ranks 1 and 2 say to each other"),
            std::string::npos)
      << status.text();
}

TEST(Agreement, FabricsOfHostsAreMerged) {
  const Result<Fabric> network = synthetic_fabric("racks=1,2");
  ASSERT_TRUE(network.ok()) << network.status().text();
  const HostFabric host = there_and_back(HostFabric(network));
  const Result<Fabric> merged = merge_fabrics(*network, {host.encode(), Bytes{}});
  ASSERT_TRUE(merged.ok()) << merged.status().text();
  EXPECT_EQ(merged->fingerprint(), network->fingerprint());

  const HostFabric failed = there_and_back(HostFabric(Result<Fabric>(invalid("it is on fire"))));
  const Result<Fabric> stopped = merge_fabrics(*network, {Bytes{}, failed.encode()});
  EXPECT_EQ(stopped.status().kind(), SENNIT_INVALID_ARGUMENT);
  EXPECT_EQ(stopped.status().text(), "it is on fire");
  EXPECT_EQ(merge_fabrics(invalid("no file"), {failed.encode()}).status().text(), "no file");
}

TEST(Agreement, VerdictsSurviveTheWay) {
  FabricVerdict verdict;
  verdict.fabric = "a fabric";
  verdict.tuning = "a table";
  verdict.message_cpu_ns = 7'000;
  verdict.error = "an error";
  const FabricVerdict other = there_and_back(verdict);
  EXPECT_EQ(other.fabric, "a fabric");
  EXPECT_EQ(other.tuning, "a table");
  EXPECT_EQ(other.message_cpu_ns, 7'000u);
  EXPECT_EQ(other.error, "an error");
}

// A list that says that it is longer than its message takes no memory for that.
TEST(Agreement, LengthsThatCannotBeAreRefused) {
  Bytes bytes(8, std::byte{0});  // two empty texts
  bytes.insert(bytes.end(), 4, std::byte{0xff});
  EXPECT_FALSE(Whereabouts::decode(bytes).ok());
}

}  // namespace
}  // namespace sennit
