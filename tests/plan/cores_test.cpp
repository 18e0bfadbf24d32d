// cores_test.cpp: who shares cores with whom, from what ranks tell.
//
// ctest not-under-tsan: it has one thread
#include "plan/cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "plan/message_cost.hpp"
#include "tests/support/processes.hpp"
#include "transports/tcp/overhead.hpp"
#include "transports/tcp/wire.hpp"

namespace sennit {
namespace {

TEST(Cores, RanksOfOneMachineShareItsCoresAcrossHosts) {
  std::vector<CoreSight> all(8, {"", "boot", {0, 1}});
  for (size_t i = 0; i < all.size(); i++) all[i].host = "container" + std::to_string(i);
  EXPECT_EQ(crowding_permille(all), 4000u);
  EXPECT_EQ(share_of_host(all, "container3").ranks, 1);
  EXPECT_EQ(share_of_host(all, "container3").cores, 2);
  EXPECT_EQ(share_of_machine(all, all[3]).ranks, 8);
  EXPECT_EQ(share_of_machine(all, all[3]).cores, 2);
}

TEST(Cores, WhereNobodyCanTellTheMachineItIsTheHost) {
  const std::vector<CoreSight> all = {{"a", "", {0, 1}}, {"b", "", {0, 1}}, {"a", "", {2, 2}}};
  EXPECT_EQ(share_of_machine(all, all[0]).ranks, 2);
  EXPECT_EQ(share_of_machine(all, all[0]).cores, 3);
}

TEST(Cores, RanksBoundToCoresOfTheirOwnAreNotCrowded) {
  const std::vector<CoreSight> all = {{"a", "x", {0, 3}}, {"a", "x", {4, 7}}, {"b", "y", {0, 0}}};
  EXPECT_EQ(crowding_permille(all), 1000u);
  EXPECT_EQ(share_of_host(all, "a").ranks, 2);
  EXPECT_EQ(share_of_host(all, "a").cores, 8);
}

TEST(Cores, TheMostCrowdedMachineCounts) {
  const std::vector<CoreSight> all = {
      {"a", "x", {0, 63}}, {"b", "y", {2, 2, 5, 5}}, {"c", "y", {2, 2}}, {"d", "y", {5, 5}}};
  EXPECT_EQ(crowding_permille(all), 1500u);
}

TEST(Cores, OneMachineIsOneKernelWhateverTheHosts) {
  EXPECT_TRUE(one_machine({{"a", "x", {0, 1}}, {"b", "x", {0, 1}}}));
  EXPECT_FALSE(one_machine({{"a", "x", {0, 1}}, {"b", "y", {0, 1}}}));
  EXPECT_FALSE(one_machine({{"a", "", {0, 1}}, {"a", "", {0, 1}}})) << "nobody could tell";
  EXPECT_FALSE(one_machine({}));
}

TEST(Headers, LeaveSoMuchOfALinksRate) {
  EXPECT_EQ(tcp_payload_permille(1500, false), 941u);  // 1448 / 1538
  EXPECT_EQ(tcp_payload_permille(1500, true), 956u);   // 1448 / 1514
  EXPECT_EQ(tcp_payload_permille(9000, false), 990u);
  EXPECT_EQ(tcp_message_bytes(true), sizeof(tcp::WireHeader) + 1514 - 1448);
  EXPECT_EQ(tcp_message_bytes(false), sizeof(tcp::WireHeader) + 1538 - 1448);
  EXPECT_GT(tcp_payload_permille(0, false), 800u) << "nonsense is taken for a small MTU";
  EXPECT_EQ(mtu_of("203.0.113.77"), 1500) << "not an address of this host";
  int loopback = 0;
  std::ifstream("/sys/class/net/lo/mtu") >> loopback;
  EXPECT_EQ(mtu_of("127.0.0.1"), loopback);
}

TEST(Cores, NonsenseFromAPeerIsLeftOut) {
  EXPECT_EQ(crowding_permille({{"a", "x", {7}}, {"b", "", {0, 0}}, {"c", "y", {}}}), 1000u);
  EXPECT_EQ(crowding_permille({{"a", "x", {-5, 2'000'000'000}}}), 1000u);
}

TEST(Cores, ThisProcessHasAMachineAndACore) {
  const CoreSight here = CoreSight::look();
  EXPECT_FALSE(here.machine.empty());
  EXPECT_GE(share_of_host({here}, here.host).cores, 1);
}

TEST(Cores, AMessageTakesThemMicroseconds) {
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof before, &before);
  uint64_t ns = 0;
  // a busy machine
  for (int attempt = 0; attempt < 5 && ns == 0; attempt++) ns = measure_message_cpu_ns();
  EXPECT_GT(ns, 300u) << "two system calls and a wake-up";
  EXPECT_LT(ns, 1'000'000u) << "a thread that got no core in between";
  sched_getaffinity(0, sizeof after, &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "this thread keeps its cores";
}

// A process that has just begun is often the last to get a core.
TEST(Cores, AMessageTakesThemNoLongerWhereOthersTakeTurnsOnThem) {
  const int cores = share_of_host({CoreSight::look()}, CoreSight::look().host).cores;
  sennit_test::Processes busy(2 * cores, [](int) {
    setsid();
    for (std::atomic<bool> on = true; on;) {
    }
    return std::string();
  });
  for (int attempt = 0; attempt < 10; attempt++) {
    sennit_test::Processes fresh(1, [](int) { return std::to_string(measure_message_cpu_ns()); });
    const auto report = fresh.reports(std::chrono::minutes(4)).front();
    ASSERT_TRUE(report) << "killed";
    EXPECT_LT(std::stoull(*report), 1'000'000u);
  }
}

}  // namespace
}  // namespace sennit
