// shm_hosts_test.cpp: ranks of one machine that share /dev/shm, as containers may, and that the job
// counts as two hosts: those of one host talk through shared memory, the others through the
// network.
// ctest not-under-tsan: its ranks are processes
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "sennit/sennit.h"
#include "tests/support/processes.hpp"

using namespace std::chrono_literals;
using sennit_test::Processes;

namespace {

constexpr int kRanks = 4;
constexpr int kSumOfRanks = 6;

// What rank `to` gets from rank `from`.
int32_t word(int from, int to) { return 100 * from + to; }

// Two ranks for each host name. "well", or the first thing that is not.
std::string talk(int rank) {
  setenv("SLURMD_NODENAME", rank < kRanks / 2 ? "a" : "b", 1);
  sennit_comm_t comm = nullptr;
  REQUIRE(sennit_comm_init_env(&comm, nullptr) == SENNIT_OK);
  for (const size_t count : {size_t{1}, size_t{50'000}}) {
    const std::vector<int32_t> in(count, rank);
    std::vector<int32_t> out(count);
    REQUIRE(sennit_all_reduce(in.data(), out.data(), count, SENNIT_INT32, SENNIT_SUM, comm) ==
            SENNIT_OK);
    REQUIRE(out == std::vector<int32_t>(count, kSumOfRanks));
    std::vector<int32_t> said, heard, expected;
    for (int peer = 0; peer < kRanks; peer++) {
      said.insert(said.end(), count, word(rank, peer));
      expected.insert(expected.end(), count, word(peer, rank));
    }
    heard.resize(said.size());
    REQUIRE(sennit_all_to_all(said.data(), heard.data(), count, SENNIT_INT32, comm) == SENNIT_OK);
    REQUIRE(heard == expected);
    // Straight to everybody, whatever way an algorithm takes.
    std::fill(heard.begin(), heard.end(), -1);
    REQUIRE(sennit_group_start() == SENNIT_OK);
    for (int peer = 0; peer < kRanks; peer++) {
      const size_t block = static_cast<size_t>(peer) * count;
      REQUIRE(sennit_send(&said[block], count, SENNIT_INT32, peer, comm) == SENNIT_OK);
      REQUIRE(sennit_recv(&heard[block], count, SENNIT_INT32, peer, comm) == SENNIT_OK);
    }
    REQUIRE(sennit_group_end() == SENNIT_OK);
    REQUIRE(heard == expected);
  }
  sennit_comm_destroy(comm);
  return "well";
}

TEST(ShmHosts, TwoOfTwoRanksOnOneDevShmDoNotMix) {
  Processes ranks(kRanks, talk, {{"SENNIT_TRANSPORTS", "shm,tcp"}});
  for (const auto& report : ranks.reports(240s)) EXPECT_EQ(report.value_or("nothing"), "well");
}

}  // namespace
