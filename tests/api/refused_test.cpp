// refused_test.cpp: calls that one rank alone was refused while the others wait for it: these are
// told who and why within seconds, and not where the rank puts its call right.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/ranks.hpp"

using namespace std::chrono_literals;
using sennit_test::Ranks;

namespace {

using CallOfRank = sennit_status_t (*)(int, sennit_comm_t);

struct Case {
  CallOfRank call;  // off on rank 1
  const char* text;
};

sennit_status_t split(int color, sennit_comm_t comm) {
  sennit_comm_t part = nullptr;
  const sennit_status_t status = sennit_comm_split(comm, color, 0, &part);
  if (part) sennit_comm_destroy(part);
  return status;
}

sennit_status_t group(std::vector<int> ranks, sennit_comm_t comm) {
  sennit_comm_t made = nullptr;
  const sennit_status_t status =
      sennit_comm_create_group(comm, ranks.data(), static_cast<int>(ranks.size()), 0, &made);
  if (made) sennit_comm_destroy(made);
  return status;
}

sennit_status_t sum(size_t count, sennit_comm_t comm) {
  thread_local float x[8];  // a group's call is made once the group ends
  return sennit_all_reduce(count ? x : nullptr, x, 8, SENNIT_FLOAT32, SENNIT_MAX, comm);
}

// Each on communicators of its own, all at once.
TEST(Refused, AreToldToThoseWhoWait) {
  const std::vector<Case> cases = {
      {[](int rank, sennit_comm_t comm) { return split(rank == 1 ? -7 : 0, comm); },
       "call 1 on communicator 1: rank 1 was refused it, color -7: expected 0 or more, or "
       "SENNIT_NO_COLOR; ranks 0,2 called all_gather count 3 int32"},
      {[](int rank, sennit_comm_t comm) {
         return rank == 1 ? sennit_comm_split(comm, 0, 0, nullptr) : split(0, comm);
       },
       "rank 1 was refused it, split: result is NULL; ranks 0,2 called"},
      {[](int rank, sennit_comm_t comm) {
         return group(rank == 1 ? std::vector<int>{0, 1, 3} : std::vector<int>{0, 1, 2}, comm);
       },
       "create_group of ranks 0,1,2 of communicator 1, tag 0: rank 1 was refused it, create_group: "
       "rank 3 in the list: expected 0 <= it < 3"},
      {[](int rank, sennit_comm_t comm) { return sum(rank == 1 ? 0 : 8, comm); },
       "rank 1 was refused it, "},
      // The call before it is not made either.
      {[](int rank, sennit_comm_t comm) {
         sennit_group_start();
         sum(8, comm);
         float x = 0;
         sennit_send(&x, 1, SENNIT_FLOAT32, rank == 1 ? 5 : rank, comm);
         sennit_recv(&x, 1, SENNIT_FLOAT32, rank, comm);
         return sennit_group_end();
       },
       "rank 1 was refused it, "},
      // As a library in front of this one says it.
      {[](int rank, sennit_comm_t comm) {
         if (rank != 1) return sennit_barrier(comm);
         EXPECT_EQ(sennit_comm_refuse(comm, "no such thing"), SENNIT_OK);
         return SENNIT_INVALID_ARGUMENT;
       },
       "rank 1 was refused it, no such thing; ranks 0,2 called barrier"},
  };
  std::vector<std::thread> jobs;
  for (const Case& test : cases)
    jobs.emplace_back([&test] {
      Ranks ranks(3);
      ranks.run([&test](int rank, sennit_comm_t comm) {
        EXPECT_EQ(test.call(rank, comm), rank == 1 ? SENNIT_INVALID_ARGUMENT : SENNIT_MISMATCH);
        const std::string text = sennit_last_error();
        if (rank != 1) {
          EXPECT_NE(text.find(test.text), std::string::npos) << text;
        }
      });
    });
  for (std::thread& job : jobs) job.join();
}

// It may take its time to find what was wrong: nobody else is told before some seconds are over.
TEST(Refused, MayBePutRight) {
  Ranks ranks(2);
  ranks.run([](int rank, sennit_comm_t comm) {
    if (rank == 1) {
      std::this_thread::sleep_for(1200ms);
      EXPECT_EQ(split(-7, comm), SENNIT_INVALID_ARGUMENT);
      EXPECT_EQ(group({1, 7}, comm), SENNIT_INVALID_ARGUMENT);
      std::this_thread::sleep_for(1200ms);
    }
    EXPECT_EQ(split(0, comm), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(group({0, 1}, comm), SENNIT_OK) << sennit_last_error();
  });
}

// What rank 1 does before it is late to what both ranks do then.
struct LateCase {
  void (*before)(int rank, sennit_comm_t comm);
  sennit_status_t (*then)(sennit_comm_t comm);
};

std::vector<LateCase> late_cases() {
  const auto sums = [](sennit_comm_t comm) { return sum(8, comm); };
  const auto makes_group = [](sennit_comm_t comm) { return group({0, 1}, comm); };
  return {
      // A message in place of the call that was refused.
      {[](int rank, sennit_comm_t comm) {
         float x = 0;
         if (rank == 1) {
           EXPECT_EQ(sum(0, comm), SENNIT_INVALID_ARGUMENT);
           EXPECT_EQ(sennit_send(&x, 1, SENNIT_FLOAT32, 0, comm), SENNIT_OK);
         } else {
           EXPECT_EQ(sennit_recv(&x, 1, SENNIT_FLOAT32, 1, comm), SENNIT_OK);
         }
       },
       sums},
      // A message to nobody, which is missed in no collective.
      {[](int rank, sennit_comm_t comm) {
         float x = 0;
         if (rank == 1) {
           EXPECT_EQ(sennit_send(&x, 1, SENNIT_FLOAT32, 5, comm), SENNIT_INVALID_ARGUMENT);
         }
       },
       sums},
      // A group of others.
      {[](int rank, sennit_comm_t comm) {
         if (rank == 1) {
           EXPECT_EQ(group({0}, comm), SENNIT_INVALID_ARGUMENT);
         }
       },
       makes_group},
      // A call since.
      {[](int rank, sennit_comm_t comm) {
         if (rank == 1) {
           EXPECT_EQ(group({1, 7}, comm), SENNIT_INVALID_ARGUMENT);
         }
         EXPECT_EQ(sum(8, comm), SENNIT_OK) << sennit_last_error();
       },
       makes_group},
      // Another end of the communicator since.
      {[](int rank, sennit_comm_t comm) {
         if (rank == 1) {
           EXPECT_EQ(sennit_comm_refuse(comm, "no such thing"), SENNIT_OK);
           EXPECT_EQ(sennit_comm_abort(comm), SENNIT_OK);
           EXPECT_EQ(sum(8, comm), SENNIT_ABORTED);
         } else {
           EXPECT_EQ(sum(8, comm), SENNIT_ABORTED);
         }
       },
       makes_group},
  };
}

// Each on communicators of its own, all at once.
TEST(Refused, AreOnlyLateWhereTheyGoOn) {
  const std::vector<LateCase> cases = late_cases();
  std::vector<std::thread> jobs;
  for (const LateCase& test : cases)
    jobs.emplace_back([&test] {
      Ranks ranks(2);
      ranks.run([&test](int rank, sennit_comm_t comm) {
        test.before(rank, comm);
        if (rank == 1) std::this_thread::sleep_for(8s);
        EXPECT_EQ(test.then(comm), SENNIT_OK) << sennit_last_error();
      });
    });
  for (std::thread& job : jobs) job.join();
}

// What all ranks were refused alike says nothing of the one who comes last to what they do instead.
TEST(Refused, OnAllRanksIsNobodysFault) {
  Ranks ranks(2);
  ranks.run([](int rank, sennit_comm_t comm) {
    EXPECT_EQ(sum(0, comm), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(group({rank, 7}, comm), SENNIT_INVALID_ARGUMENT);
    if (rank == 1) std::this_thread::sleep_for(7s);
    EXPECT_EQ(sum(8, comm), SENNIT_OK) << sennit_last_error();
    if (rank == 0) std::this_thread::sleep_for(100ms);
    EXPECT_EQ(group({0, 1}, comm), SENNIT_OK) << sennit_last_error();
  });
}

}  // namespace
