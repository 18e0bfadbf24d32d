// late_test.cpp: calls that some ranks do not make: a caller's own time for its work is over, and
// how long a communicator waits.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/ranks.hpp"

using namespace std::chrono_literals;
using sennit_test::Ranks;

namespace {

constexpr int64_t kFarMs = 60'000;  // the arrival time-out is twice as long

// What the communicator failed with, once it has.
std::string failure_of(sennit_comm_t comm) {
  sennit_status_t status = SENNIT_OK;
  while ((status = sennit_comm_get_async_error(comm)) == SENNIT_OK)
    std::this_thread::sleep_for(1ms);
  return std::string(sennit_status_name(status)) + ": " + sennit_last_error();
}

// On three ranks: `callers` start an all-reduce, and when all have `impatient` gives up on it. What
// all heard.
std::string give_up(const std::vector<int>& callers, int impatient) {
  Ranks ranks(3);
  std::vector<std::string> told(3);
  std::atomic<size_t> called{0};
  ranks.run([&](int rank, sennit_comm_t comm) {
    int32_t x[4] = {};
    if (std::find(callers.begin(), callers.end(), rank) != callers.end()) {
      sennit_work_t work = nullptr;
      ASSERT_EQ(sennit_all_reduce_start(x, x, 4, SENNIT_INT32, SENNIT_SUM, comm, &work), SENNIT_OK);
      called++;
      if (rank == impatient) {
        EXPECT_TRUE(sennit_test::eventually([&] { return called == callers.size(); }));
        EXPECT_EQ(sennit_work_wait(work, 50), SENNIT_IN_PROGRESS);
        EXPECT_EQ(sennit_work_expire(work, 50), SENNIT_OK) << sennit_last_error();
      }
      EXPECT_EQ(sennit_work_wait(work, kFarMs), SENNIT_TIMED_OUT) << sennit_last_error();
      sennit_work_free(work);
    }
    told[static_cast<size_t>(rank)] = failure_of(comm);
  });
  EXPECT_EQ(told[1], told[0]);
  EXPECT_EQ(told[2], told[0]);
  return told[0];
}

TEST(Late, AreNamedWhenACallersOwnTimeIsOver) {
  EXPECT_EQ(
      give_up({0, 1}, 0),
      "timed out: rank 2 did not arrive in call 1 on communicator 1 (all_reduce count 4 int32 "
      "sum) within 50 ms; it has called nothing there");
  EXPECT_EQ(
      give_up({1, 2}, 2),
      "timed out: rank 0 did not arrive in call 1 on communicator 1 (all_reduce count 4 int32 "
      "sum) within 50 ms; it has called nothing there");
  EXPECT_EQ(give_up({1}, 1),
            "timed out: ranks 0,2 did not arrive in call 1 on communicator 1 (all_reduce count 4 "
            "int32 sum) within 50 ms");
}

TEST(Late, OfAMessagePeerAndTagAreNamed) {
  for (const bool receives : {true, false}) {
    Ranks ranks(3);
    ranks.run([&](int rank, sennit_comm_t comm) {
      std::vector<int32_t> data(1'000'000);  // a send waits for its receive
      if (rank == 2) {
        sennit_work_t work = nullptr;
        ASSERT_EQ(receives ? sennit_recv_tagged_start(data.data(), data.size(), SENNIT_INT32, 1, 9,
                                                      comm, &work)
                           : sennit_send_tagged_start(data.data(), data.size(), SENNIT_INT32, 1, 9,
                                                      comm, &work),
                  SENNIT_OK);
        EXPECT_EQ(sennit_work_wait(work, 30), SENNIT_IN_PROGRESS);
        EXPECT_EQ(sennit_work_expire(work, 30), SENNIT_OK);
        EXPECT_EQ(sennit_work_wait(work, kFarMs), SENNIT_TIMED_OUT) << sennit_last_error();
        sennit_work_free(work);
      }
      EXPECT_EQ(failure_of(comm),
                std::string("timed out: rank 2 has waited 30 ms in ") +
                    (receives ? "recv count 1000000 int32 from" : "send count 1000000 int32 to") +
                    " rank 1, tag 9, on communicator 1: no matching call has completed it");
    });
  }
}

TEST(Late, IsTheOtherHalfOfAMessageToOneself) {
  Ranks ranks(1);
  int32_t x = 0;
  sennit_work_t work = nullptr;
  ASSERT_EQ(sennit_recv_tagged_start(&x, 1, SENNIT_INT32, 0, 3, ranks.comm(0), &work), SENNIT_OK);
  EXPECT_EQ(sennit_work_expire(work, 20), SENNIT_OK);
  EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_TIMED_OUT);
  EXPECT_STREQ(sennit_last_error(),
               "rank 0 has waited 20 ms in a message to itself, tag 3, on communicator 1: no "
               "matching call has completed it");
  sennit_work_free(work);
}

TEST(Late, IsNobodyInAWorkThatHasCompleted) {
  Ranks ranks(2);
  ranks.run([](int, sennit_comm_t comm) {
    int32_t x = 1;
    sennit_work_t work = nullptr;
    ASSERT_EQ(sennit_all_reduce_start(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm, &work), SENNIT_OK);
    EXPECT_EQ(sennit_work_expire(nullptr, 1), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_work_expire(work, -1), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK);
    EXPECT_EQ(sennit_work_expire(work, 1), SENNIT_OK);
    EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK);
    sennit_work_free(work);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
    sennit_group_start();
    ASSERT_EQ(sennit_barrier_start(comm, &work), SENNIT_OK);
    EXPECT_EQ(sennit_work_expire(work, 1), SENNIT_INVALID_ARGUMENT) << "it is not started";
    EXPECT_EQ(sennit_group_end(), SENNIT_OK);
    sennit_work_free(work);
  });
}

// A library that stands in for another may wait for ever; who runs it may not want that.
TEST(Late, IsWhoeverTheEnvironmentSaysToAConfigThatWaitsForEver) {
  sennit_config_t config = SENNIT_CONFIG_INIT;
  config.arrival_timeout_ms = INT32_MAX;
  setenv("SENNIT_ARRIVAL_TIMEOUT", "3000", 1);
  Ranks patient(2, &config);
  setenv("SENNIT_ARRIVAL_TIMEOUT", "1000000", 1);
  config.arrival_timeout_ms = 3000;
  Ranks own(2, &config);
  unsetenv("SENNIT_ARRIVAL_TIMEOUT");
  for (Ranks* const ranks : {&patient, &own})
    ranks->run([](int rank, sennit_comm_t comm) {
      sennit_work_t work = nullptr;
      if (rank == 1) {
        failure_of(comm);
        return;
      }
      ASSERT_EQ(sennit_barrier_start(comm, &work), SENNIT_OK);
      EXPECT_EQ(sennit_work_wait(work, kFarMs), SENNIT_TIMED_OUT) << sennit_last_error();
      EXPECT_NE(std::string(sennit_last_error()).find("within 3000 ms"), std::string::npos)
          << sennit_last_error();
      sennit_comm_abort(comm);
      sennit_work_free(work);
    });
}

}  // namespace
