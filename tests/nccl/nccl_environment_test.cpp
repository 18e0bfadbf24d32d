// nccl_environment_test.cpp: what NCCL's variables ask of sennit's: levels, interfaces, devices and
// algorithms; what the user set himself stays; what is ignored is said; and a process reads them
// before its first start.
// ctest links: nccl_forwarder
// ctest compiles: src/nccl/environment.cpp
// ctest runs: sennit_nccl
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/net/reserved_port.hpp"
#include "nccl/environment.hpp"
#include "nccl/exported.hpp"
#include "tests/support/process.hpp"

using sennit::nccl::Host;
using sennit::nccl::translate;
using sennit::nccl::Translation;
using sennit::nccl::Variables;
using sennit_test::Process;

namespace {

const Host kHost = {{"lo", "eth0", "eth10", "ib0", "docker0"},
                    {"mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1"}};

// The value that one variable gives to another; "" where it gives none.
std::string given(const char* name, const char* value, const char* to, Variables others = {}) {
  others.emplace_back(name, value);
  const Translation made = translate(others, kHost);
  EXPECT_TRUE(made.off.ok()) << made.off.text;
  for (const auto& [key, result] : made.settings)
    if (key == to) return result;
  return "";
}

TEST(NcclEnvironment, LevelsOfTheLog) {
  const std::pair<const char*, const char*> levels[] = {{"VERSION", "error"},
                                                        {"WARN", "warn"},
                                                        {"INFO", "info"},
                                                        {"TRACE", "debug"},
                                                        {"warn", "warn"}};
  for (const auto& [value, own] : levels)
    EXPECT_EQ(given("NCCL_DEBUG", value, "SENNIT_LOG"), own) << value;
  EXPECT_EQ(given("NCCL_DEBUG", "LOUD", "SENNIT_LOG"), "");
  EXPECT_EQ(given("NCCL_DEBUG", "INFO", "SENNIT_LOG", {{"SENNIT_LOG", "error"}}), "");
}

TEST(NcclEnvironment, InterfacesByPrefixNameAndExclusion) {
  const std::pair<const char*, const char*> choices[] = {
      {"eth", "eth0"},         {"eth1", "eth10"}, {"ib,eth", "eth0"},     {"=eth10", "eth10"},
      {"=eth10,ib0", "eth10"}, {"^eth", "ib0"},   {"^=eth0,lo", "eth10"}, {"lo", "lo"}};
  for (const auto& [value, interface] : choices)
    EXPECT_EQ(given("NCCL_SOCKET_IFNAME", value, "SENNIT_INTERFACE"), interface) << value;
  EXPECT_EQ(given("NCCL_SOCKET_IFNAME", "eth", "SENNIT_INTERFACE", {{"SENNIT_INTERFACE", "lo"}}),
            "");
  const Translation none = translate({{"NCCL_SOCKET_IFNAME", "=eth"}}, kHost);
  EXPECT_EQ(none.off.result, ncclInvalidUsage);
  EXPECT_NE(none.off.text.find("lo, eth0, eth10, ib0, docker0"), std::string::npos)
      << none.off.text;
}

TEST(NcclEnvironment, DevicesInUcxsForm) {
  const std::pair<const char*, const char*> choices[] = {
      {"mlx5_1", "mlx5_1:1,mlx5_1:2,mlx5_10:1"},     {"=mlx5_1", "mlx5_1:1,mlx5_1:2"},
      {"=mlx5_1:2,mlx5_0:1", "mlx5_0:1,mlx5_1:2"},   {"^mlx5_1", "mlx5_0:1"},
      {"^=mlx5_1:1", "mlx5_0:1,mlx5_1:2,mlx5_10:1"}, {"rocep", ""}};
  for (const auto& [value, devices] : choices)
    EXPECT_EQ(given("NCCL_IB_HCA", value, "UCX_NET_DEVICES"), devices) << value;
}

TEST(NcclEnvironment, AlgorithmsThatSennitHasTheLikeOf) {
  EXPECT_EQ(given("NCCL_ALGO", "Ring", "SENNIT_ALGORITHM"), "ring");
  EXPECT_EQ(given("NCCL_ALGO", "TREE", "SENNIT_ALGORITHM"), "double_tree");
  EXPECT_EQ(given("NCCL_ALGO", "^Tree", "SENNIT_ALGORITHM"), "");
  EXPECT_EQ(given("NCCL_ALGO", "allreduce:ring", "SENNIT_ALGORITHM"), "");
}

TEST(NcclEnvironment, WhatIsIgnoredIsSaidOnce) {
  Variables all = {{"NCCL_NTHREADS", "4"}, {"PATH", "/"}, {"NCCL_BUFFSIZE", "1"}, {"NCCL_P2P", ""}};
  Translation made = translate(all, kHost);
  ASSERT_EQ(made.remarks.size(), 1u);
  EXPECT_EQ(made.remarks[0], "NCCL_NTHREADS, NCCL_BUFFSIZE: ignored, sennit has not the like");
  EXPECT_FALSE(made.remarks_asked_for);
  all.emplace_back("NCCL_DEBUG", "INFO");
  EXPECT_TRUE(translate(all, kHost).remarks_asked_for);
  EXPECT_TRUE(translate({}, kHost).remarks.empty());
}

// A child whose environment has the variable makes a communicator; what it says.
std::string said_by_child(const char* name, const char* value, ncclResult_t expected) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv(name, value, 1);
    setenv("NCCL_NTHREADS", "4", 1);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitAll(&comm, 1, nullptr);
    if (result != ncclSuccess) std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
    if (result == ncclSuccess) ncclCommDestroy(comm);
    _exit(result == expected ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char bytes[4096];
  for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;)
    said.append(bytes, static_cast<size_t>(got));
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << said;
  return said;
}

TEST(NcclEnvironment, IsReadBeforeTheFirstStart) {
  const std::string informed = said_by_child("NCCL_DEBUG", "INFO", ncclSuccess);
  EXPECT_NE(informed.find("in place of NCCL, with the functions of 2.32.3"), std::string::npos)
      << informed;
  EXPECT_NE(informed.find("info: NCCL_NTHREADS: ignored"), std::string::npos) << informed;
  EXPECT_EQ(said_by_child("NCCL_DEBUG", "WARN", ncclSuccess).find("NTHREADS"), std::string::npos);
  const std::string lost = said_by_child("NCCL_SOCKET_IFNAME", "=nowhere", ncclInvalidUsage);
  EXPECT_NE(lost.find("NCCL_SOCKET_IFNAME==nowhere: chooses none"), std::string::npos) << lost;
}

TEST(NcclEnvironment, AnAddressAloneIsNoId) {
  const std::string said = said_by_child("NCCL_COMM_ID", "127.0.0.1:5000", ncclInvalidUsage);
  EXPECT_NE(said.find("lets anybody join"), std::string::npos) << said;
}

// As NCCL's programs use it: every rank asks for the id by itself.
TEST(NcclEnvironment, AnAddressAndASecretAreAnId) {
  const sennit::ReservedPort port;
  std::vector<Process> ranks(2);
  for (int rank = 0; rank < 2; rank++)
    ranks[static_cast<size_t>(rank)] = Process([&]() -> std::string {
      setenv("NCCL_COMM_ID", ("127.0.0.1:" + std::to_string(port.number() + 1)).c_str(), 1);
      setenv("SENNIT_SECRET", "words of a test", 1);
      ncclUniqueId id;
      ncclComm_t comm = nullptr;
      int32_t mine = rank + 1, sum = 0;
      if (ncclGetUniqueId(&id) != ncclSuccess ||
          ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess ||
          ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, nullptr) != ncclSuccess)
        return ncclGetLastError(nullptr);
      ncclCommDestroy(comm);
      return sum == 3 ? "ok" : "a sum of " + std::to_string(sum);
    });
  for (Process& rank : ranks) EXPECT_EQ(rank.outcome(std::chrono::seconds(60)), "ok");
}

}  // namespace
