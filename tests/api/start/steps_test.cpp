// steps_test.cpp: the steps of a start at one rank, by what the others tell it: rank 0's word holds
// for all, one rank's trouble stops all, and a control plane that fails ends the step with its
// error.
//
// ctest not-under-tsan: it has one thread
#include "api/start/steps.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace sennit {
namespace {

// The other ranks: what they say is given, and what this rank says is kept.
class Others final : public Control {
 public:
  Others(int rank, int size) : rank_(rank), size_(size) {}

  Bytes mine;                 // as this rank told
  Bytes word;                 // rank 0's, where this is another rank
  std::vector<Bytes> others;  // by rank; this rank's own is put in
  Status trouble;             // of the control plane

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  uint64_t job() const override { return 1; }
  const std::vector<std::byte>& secret() const override { return secret_; }
  bool sealed() const override { return false; }
  std::string interface_address() const override { return "127.0.0.1"; }
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> blob) override {
    mine.assign(blob.begin(), blob.end());
    if (!trouble.ok()) return trouble;
    std::vector<Bytes> all = others;
    all.resize(static_cast<size_t>(size_));
    all[static_cast<size_t>(rank_)] = mine;
    return all;
  }
  Result<Bytes> broadcast(std::span<const std::byte> from_rank0) override {
    mine.assign(from_rank0.begin(), from_rank0.end());
    if (!trouble.ok()) return trouble;
    return rank_ == 0 ? mine : word;
  }
  void report_suspect(int, const std::string&) override {}
  void report_stall(const CallDescriptor&) override {}
  void expire(const CallDescriptor&, int64_t) override {}
  void report_mismatch(const CallDescriptor&, int) override {}
  void abort(uint32_t, const std::string&) override {}
  void fail(uint32_t, const Status&) override {}
  void tell(uint8_t, std::vector<std::byte>, MayWait) override {}
  void announce(uint8_t, uint64_t, std::vector<std::byte>) override {}
  void leave() override {}
  std::string statistics() const override { return ""; }

 private:
  const int rank_, size_;
  std::vector<std::byte> secret_;
};

const Status kDeath{SENNIT_PEER_FAILED, "rank 1 died"};

struct Step : ::testing::Test {
  void SetUp() override { unset(); }
  void TearDown() override { unset(); }
  static void unset() {
    for (const char* name : {"SENNIT_TRANSPORTS", "SENNIT_ALGORITHM", "SENNIT_CONCURRENCY"})
      unsetenv(name);
  }
};

TEST_F(Step, TransportsAreOfThisBuild) {
  EXPECT_TRUE(check_transport_names().ok());
  setenv("SENNIT_TRANSPORTS", "shm,tcp,", 1);
  EXPECT_TRUE(check_transport_names().ok());
  setenv("SENNIT_TRANSPORTS", "shm,carrier_pigeon", 1);
  EXPECT_EQ(check_transport_names().text().find(
                "SENNIT_TRANSPORTS: this build has no transport 'carrier_pigeon'; it has "),
            0u)
      << check_transport_names().text();
}

TEST_F(Step, Rank0sOptionsHoldForAll) {
  Others root(0, 2);
  const Result<JobOptions> own = agree_on_options(root, {"", "tiered", "", 0});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->algorithm, "tiered");
  Others other(1, 2);
  other.word = root.mine;
  setenv("SENNIT_ALGORITHM", "ring", 1);
  const Result<JobOptions> agreed = agree_on_options(other, {"", "ring", "", 0});
  ASSERT_TRUE(agreed.ok());
  EXPECT_EQ(agreed->algorithm, "tiered");
  EXPECT_TRUE(other.mine.empty()) << "nobody asks for its own";
}

TEST_F(Step, ConcurrencyIsRank0sToo) {
  setenv("SENNIT_CONCURRENCY", "alone", 1);
  Others root(0, 2);
  EXPECT_EQ(agree_on_options(root, {})->concurrency, (Concurrency{false, 1}));
  EXPECT_EQ(agree_on_options(root, {"", "", "3", 0})->concurrency, (Concurrency{false, 3}));
  Others other(1, 2);
  other.word = root.mine;
  EXPECT_EQ(agree_on_options(other, {})->concurrency, (Concurrency{false, 3}));
  const Status off = agree_on_options(root, {"", "", "many", 0}).status();
  EXPECT_EQ(off.text().find("SENNIT_CONCURRENCY: concurrency 'many': expected"), 0u) << off.text();
  unsetenv("SENNIT_CONCURRENCY");
  EXPECT_TRUE(agree_on_options(root, {})->concurrency.siblings);
}

TEST_F(Step, OptionsThatCannotBeStopAll) {
  setenv("SENNIT_ALGORITHM", "carrier_pigeon", 1);
  Others root(0, 2);
  EXPECT_EQ(agree_on_options(root, {}).status().kind(), SENNIT_NOT_FOUND);
  Others other(1, 2);
  other.word = root.mine;
  EXPECT_EQ(agree_on_options(other, {}).status().kind(), SENNIT_NOT_FOUND)
      << "rank 0 told what it has, and all find out";
}

TEST_F(Step, WordsThatAreNoneAndAFailedControlPlaneAreErrors) {
  Others other(1, 2);
  other.word = Bytes(3);
  EXPECT_EQ(agree_on_options(other, {}).status().kind(), SENNIT_INTERNAL);
  other.others = {Bytes(3)};
  EXPECT_EQ(agree_on_hosts(other).status().kind(), SENNIT_INTERNAL);
  other.trouble = kDeath;
  CostModel cost;
  EXPECT_EQ(agree_on_options(other, {}).status().text(), "rank 1 died");
  EXPECT_EQ(agree_on_hosts(other).status().text(), "rank 1 died");
  HostSharing hosts;
  hosts.host_of_rank = {"a", "b"};
  EXPECT_EQ(start_transports(other, hosts, {}, &cost).status().text(), "rank 1 died");
  EXPECT_EQ(tell_fabric(other, Fabric{}, {}, &cost).status().text(), "rank 1 died");
}

TEST_F(Step, HostsAreSharedByWhatAllTell) {
  Others other(1, 2);
  Whereabouts elsewhere;
  elsewhere.sight = {"elsewhere", "machine", {0, 1}};
  other.others = {elsewhere.encode()};
  const Result<HostSharing> hosts = agree_on_hosts(other);
  ASSERT_TRUE(hosts.ok()) << hosts.status().text();
  EXPECT_EQ(hosts->host_of_rank[0], "elsewhere");
  EXPECT_EQ(hosts->speakers(), (std::vector<int>{0, 1}));
  EXPECT_EQ(hosts->here.ranks, 1);
}

TEST_F(Step, OneRankThatCannotGoOnStopsAll) {
  Others other(1, 2);
  Whereabouts in_need;
  in_need.error = "rank 0 on host a: no file descriptors left";
  other.others = {in_need.encode()};
  EXPECT_EQ(agree_on_hosts(other).status().text(), in_need.error);
  EXPECT_EQ(agree_on_hosts(other).status().kind(), SENNIT_OUT_OF_RESOURCES);
  TransportOffer nothing;
  nothing.placement.host = "a";
  nothing.error = "no transport could be started";
  other.others = {nothing.encode()};
  CostModel cost;
  HostSharing hosts;
  hosts.host_of_rank = {"a", "b"};
  hosts.here = {1, 1};
  EXPECT_EQ(start_transports(other, hosts, {}, &cost).status().text(),
            "rank 0 on host a: no transport could be started");
  EXPECT_FALSE(TransportOffer::decode(other.mine)->addresses.empty()) << "it had told its own";
}

TEST_F(Step, AFabricThatRank0CouldNotReadStopsAll) {
  Others root(0, 2);
  CostModel cost;
  const Status unread{SENNIT_NOT_FOUND, "fabric.txt: no such file"};
  EXPECT_FALSE(tell_fabric(root, unread, {}, &cost).ok());
  Others other(1, 2);
  other.word = root.mine;
  EXPECT_EQ(tell_fabric(other, Fabric{}, {}, &cost).status().text(), unread.text());
}

TEST_F(Step, AllPlanWithWhatRank0Measured) {
  Others root(0, 2);
  CostModel measured;
  measured.shared_cores.message_cpu_ns = 4321;
  JobOptions options;
  options.tune = "again";  // without the tuning table of whoever runs this
  ASSERT_TRUE(tell_fabric(root, Fabric{}, options, &measured).ok());
  Others other(1, 2);
  other.word = root.mine;
  CostModel cost;
  ASSERT_TRUE(tell_fabric(other, Fabric{}, options, &cost).ok());
  EXPECT_EQ(cost.shared_cores.message_cpu_ns, 4321u);
}

}  // namespace
}  // namespace sennit
