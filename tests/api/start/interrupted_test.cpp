// interrupted_test.cpp: starts whose caller wants them no more: each of their waits ends, all ranks
// that were reached are told, and nothing is left.
// ctest not-under-tsan: its threads are counted, and the sanitizer has its own
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "base/net/reserved_port.hpp"
#include "sennit/sennit.h"
#include "tests/support/eventually.hpp"
#include "tests/support/process_counts.hpp"

namespace sennit {
namespace {

using sennit_test::descriptors;
using sennit_test::eventually;
using sennit_test::threads;

// Wants the start no more when it was asked so often.
struct Caller {
  int patience = 2;
  int asked = 0;
  sennit_config_t config = SENNIT_CONFIG_INIT;
  Caller() {
    config.interrupted_user = this;
    config.interrupted = [](void* user) {
      auto* const self = static_cast<Caller*>(user);
      return static_cast<int>(++self->asked >= self->patience);
    };
  }
};

void expect_aborted(sennit_status_t status, const Caller& caller) {
  EXPECT_EQ(status, SENNIT_ABORTED) << sennit_last_error();
  EXPECT_NE(std::string(sennit_last_error()).find("the start was aborted on this rank"),
            std::string::npos)
      << sennit_last_error();
  EXPECT_EQ(caller.asked, caller.patience) << "asked on";
}

// What has ended may be seen for a moment longer, also a thread that was joined: now, and when
// they were counted before.
void expect_nothing_left(int threads_before, int descriptors_before) {
  EXPECT_TRUE(eventually([&] {
    return threads() <= threads_before && descriptors() <= descriptors_before;
  })) << threads()
      << " threads of " << threads_before << ", " << descriptors() << " descriptors of "
      << descriptors_before;
}

// Rank 1 finds the maker of the id alone; rank 0 waits for the other.
TEST(Interrupted, WaitingForOthersThatNeverCome) {
  const int threads_before = threads(), descriptors_before = descriptors();
  sennit_unique_id_t id;
  ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK) << sennit_last_error();
  for (const int rank : {1, 0}) {
    Caller caller;
    sennit_comm_t comm = nullptr;
    expect_aborted(sennit_comm_init_rank(&comm, 2, &id, rank, &caller.config), caller);
    EXPECT_EQ(comm, nullptr);
  }
  expect_nothing_left(threads_before, descriptors_before);
}

TEST(Interrupted, LookingForARank0ThatIsNotThere) {
  const ReservedPort port;
  const std::string number = std::to_string(port.number());
  for (const auto& [name, value] : {std::pair("RANK", "1"), std::pair("WORLD_SIZE", "2"),
                                    std::pair("MASTER_ADDR", "127.0.0.1")})
    setenv(name, value, 1);
  setenv("SENNIT_PORT", number.c_str(), 1);
  const int threads_before = threads(), descriptors_before = descriptors();
  Caller caller;
  sennit_comm_t comm = nullptr;
  expect_aborted(sennit_comm_init_env(&comm, &caller.config), caller);
  expect_nothing_left(threads_before, descriptors_before);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "SENNIT_PORT"}) unsetenv(name);
}

// Makes rank `rank` of two and has it take part in one call; what came of that.
sennit_status_t started(const sennit_unique_id_t& id, int rank, const sennit_config_t& config) {
  sennit_comm_t comm = nullptr;
  int x = 1;
  sennit_status_t status = sennit_comm_init_rank(&comm, 2, &id, rank, &config);
  if (status == SENNIT_OK) status = sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm);
  if (comm) sennit_comm_destroy(comm);
  return status;
}

// Each time rank 1 has come somewhat further. Rank 0 waits for some time after it, as it is not
// told where rank 1 had not reached it yet.
TEST(Interrupted, WhereverItHasComeTheOtherRankIsNotLeftWaiting) {
  constexpr int kSome = 10, kMost = 200;
  sennit_status_t status = SENNIT_ABORTED;
  for (int asks = 1; status != SENNIT_OK; asks++) {
    ASSERT_LT(asks, kMost) << "a start of two ranks asks no end";
    sennit_unique_id_t id;
    ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK) << sennit_last_error();
    Caller caller;
    caller.patience = asks;
    std::atomic<int> left{INT_MAX};  // asks of rank 0
    sennit_config_t of_rank_0 = SENNIT_CONFIG_INIT;
    of_rank_0.interrupted_user = &left;
    of_rank_0.interrupted = [](void* user) {
      return static_cast<int>(--*static_cast<std::atomic<int>*>(user) <= 0);
    };
    std::thread other([&] {
      status = started(id, 1, caller.config);
      left = kSome;
    });
    const sennit_status_t of_other = started(id, 0, of_rank_0);
    const std::string text = sennit_last_error();
    other.join();
    EXPECT_TRUE(status == SENNIT_OK || status == SENNIT_ABORTED) << status;
    EXPECT_EQ(of_other, status) << text << ", after " << asks;
  }
}

// A program that was compiled before there was anything to ask, and one whose ranks are all here.
TEST(Interrupted, NotWhereNobodyAsks) {
  Caller caller;
  caller.patience = 1;
  sennit_comm_t comms[2] = {nullptr, nullptr};
  ASSERT_EQ(sennit_comm_init_local(comms, 2, &caller.config), SENNIT_OK) << sennit_last_error();
  for (const sennit_comm_t comm : comms) sennit_comm_destroy(comm);
  caller.config.size = offsetof(sennit_config_t, interrupted);
  sennit_unique_id_t id;
  ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK) << sennit_last_error();
  ASSERT_EQ(sennit_comm_init_rank(&comms[0], 1, &id, 0, &caller.config), SENNIT_OK)
      << sennit_last_error();
  sennit_comm_destroy(comms[0]);
  EXPECT_EQ(caller.asked, 0);
}

}  // namespace
}  // namespace sennit
