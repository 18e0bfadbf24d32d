// create_group_test.cpp: communicators that their members make alone out of another one: whoever is
// not in the list takes no part, also after an abort, in any order, and never after a death.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "sennit/sennit.h"
#include "tests/support/processes.hpp"
#include "tests/support/ranks.hpp"

using namespace std::chrono_literals;
using sennit_test::Ranks;

namespace {

// The sum of the world's ranks in the communicator.
int sum_over(sennit_comm_t comm, int rank) {
  int32_t sum = rank;
  EXPECT_EQ(sennit_all_reduce(&sum, &sum, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK)
      << sennit_last_error();
  return sum;
}

sennit_comm_t group_of(sennit_comm_t comm, const std::vector<int>& ranks, int tag = 0) {
  sennit_comm_t made = nullptr;
  EXPECT_EQ(
      sennit_comm_create_group(comm, ranks.data(), static_cast<int>(ranks.size()), tag, &made),
      SENNIT_OK)
      << sennit_last_error();
  return made;
}

// First in this file: processes are forked before there are threads. Rank 2 is no member of what is
// made, but of what it is made out of.
TEST(CreateGroupOfProcesses, IsRefusedWhereTheOtherHasLostAMember) {
  sennit_test::Processes processes(3, [](int rank) -> std::string {
    sennit_comm_t comm = nullptr;
    if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK) return sennit_last_error();
    sennit_comm_t before = nullptr, after = nullptr;
    const int both[] = {0, 1};
    if (rank == 2) raise(SIGKILL);
    if (sennit_comm_create_group(comm, both, 2, 0, &before) != SENNIT_OK) {
      // it may be known by now that the third is dead
    }
    while (sennit_comm_get_async_error(comm) == SENNIT_OK) std::this_thread::sleep_for(1ms);
    const sennit_status_t status = sennit_comm_create_group(comm, both, 2, 1, &after);
    std::string text = std::string(sennit_status_name(status)) + ": " + sennit_last_error();
    sennit_comm_destroy(before);
    sennit_comm_destroy(comm);
    return text;
  });
  const auto reports = processes.reports(240s);
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    ASSERT_TRUE(reports[rank].has_value());
    for (const char* part : {"peer failed", "rank 2", "create_group of ranks 0,1",
                             "who goes on without it is not decided"})
      EXPECT_NE(reports[rank]->find(part), std::string::npos) << *reports[rank];
  }
}

// Whoever is first in the list hears the others; the same tag serves again at once, with another.
TEST(CreateGroup, ATagServesAgainWhoeverIsFirst) {
  Ranks ranks(4);
  ranks.run([](int rank, sennit_comm_t comm) {
    const std::vector<std::vector<int>> lists = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0},
                                                 {0, 1},       {2, 3, 0, 1}, {1, 3, 2, 0}};
    for (size_t i = 0; i < 120; i++) {
      const std::vector<int>& list = lists[i % lists.size()];
      if (std::find(list.begin(), list.end(), rank) == list.end()) continue;
      sennit_comm_t made = group_of(comm, list, 5);
      ASSERT_NE(made, nullptr);
      int new_rank = -1;
      sennit_comm_rank(made, &new_rank);
      EXPECT_EQ(list[static_cast<size_t>(new_rank)], rank);
      if (i % 7 == 0) {
        EXPECT_EQ(sum_over(made, rank), list.size() == 2 ? 1 : 6);
      }
      sennit_comm_destroy(made);
    }
  });
}

// As a program does that makes groups again and again, each with a tag of its own.
TEST(CreateGroup, KeepsNothingOfATagThatIsOver) {
  constexpr int kGroups = 1000;
  Ranks ranks(2);
  const auto make = [&](int first_tag) {
    ranks.run([&](int, sennit_comm_t comm) {
      for (int i = 0; i < kGroups; i++) sennit_comm_destroy(group_of(comm, {0, 1}, first_tag + i));
    });
    return static_cast<int64_t>(mallinfo2().uordblks);  // 0 where a sanitizer allocates
  };
  make(0);
  const int64_t before = make(kGroups);
  const int64_t after = make(2 * kGroups);
  EXPECT_LT((after - before) / kGroups, 40) << "bytes a group";
}

TEST(CreateGroup, OnlyItsMembersTakePart) {
  Ranks ranks(5);
  std::atomic<int> done{0};
  ranks.run([&](int rank, sennit_comm_t comm) {
    if (rank % 2 == 1) {  // busy with something else until the others are through
      while (done < 3) std::this_thread::sleep_for(1ms);
      return;
    }
    sennit_comm_t made = group_of(comm, {4, 0, 2});
    ASSERT_NE(made, nullptr);
    int new_rank = -1, size = 0;
    sennit_comm_rank(made, &new_rank);
    sennit_comm_size(made, &size);
    EXPECT_EQ(size, 3);
    EXPECT_EQ(new_rank, rank == 4 ? 0 : rank / 2 + 1);
    EXPECT_EQ(sum_over(made, rank), 6);
    sennit_comm_destroy(made);
    done++;
  });
}

TEST(CreateGroup, EverySizeUpToAll) {
  constexpr int kRanks = 9;
  Ranks ranks(kRanks);
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::vector<int> list;
    for (int last = 0; last < kRanks; last++) {
      list.push_back(last);
      if (rank > last) continue;
      sennit_comm_t made = group_of(comm, list);
      EXPECT_EQ(sum_over(made, rank), last * (last + 1) / 2);
      sennit_comm_destroy(made);
    }
    EXPECT_EQ(sum_over(comm, rank), kRanks * (kRanks - 1) / 2) << "the communicator is as it was";
  });
}

// What the others send on the new communicator is for a rank that has not come to make it yet, and
// ends another one just then.
TEST(CreateGroup, NothingIsLostOnARankThatComesLate) {
  constexpr int kRanks = 4;
  for (int i = 0; i < 20; i++) {
    Ranks ranks(kRanks);
    ranks.run([&](int rank, sennit_comm_t comm) {
      sennit_comm_t other = nullptr;
      ASSERT_EQ(sennit_comm_dup(comm, &other), SENNIT_OK);
      if (rank == kRanks - 1) {
        std::this_thread::sleep_for(5ms);
        sennit_comm_destroy(other);
      }
      sennit_comm_t made = group_of(comm, {0, 1, 2, 3});
      EXPECT_EQ(sum_over(made, rank), 6);
      sennit_comm_destroy(made);
      if (rank != kRanks - 1) sennit_comm_destroy(other);
    });
  }
}

TEST(CreateGroup, SeveralThreadsAtOnce) {
  constexpr int kThreads = 4;
  Ranks ranks(3);
  ranks.run([](int rank, sennit_comm_t comm) {
    std::vector<sennit_comm_t> made(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++)
      threads.emplace_back([&, i] {
        std::this_thread::sleep_for(1ms * ((rank + i) % 3));  // in another order on each rank
        made[static_cast<size_t>(i)] = group_of(comm, {0, 1, 2}, i);
      });
    EXPECT_EQ(sum_over(comm, rank), 3) << "another thread uses it meanwhile";
    for (std::thread& thread : threads) thread.join();
    // Which is which: a sum over the first must not meet one over the second.
    std::vector<int32_t> sums(kThreads);
    std::vector<sennit_work_t> works(kThreads);
    for (size_t i = 0; i < kThreads; i++) {
      sums[i] = static_cast<int32_t>(100 * i) + rank;
      ASSERT_EQ(sennit_all_reduce_start(&sums[i], &sums[i], 1, SENNIT_INT32, SENNIT_SUM, made[i],
                                        &works[i]),
                SENNIT_OK);
    }
    for (size_t i = 0; i < kThreads; i++) {
      EXPECT_EQ(sennit_work_wait(works[i], -1), SENNIT_OK);
      sennit_work_free(works[i]);
      EXPECT_EQ(sums[i], static_cast<int32_t>(300 * i) + 3);
      sennit_comm_destroy(made[i]);
    }
  });
}

TEST(CreateGroup, OutOfOneThatWasAborted) {
  Ranks ranks(3);
  ranks.run([](int rank, sennit_comm_t comm) {
    sennit_comm_t copy = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &copy), SENNIT_OK);
    if (rank == 1) sennit_comm_abort(copy);
    while (sennit_comm_get_async_error(copy) == SENNIT_OK) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(sennit_comm_get_async_error(copy), SENNIT_ABORTED);
    if (rank != 1) {
      sennit_comm_t made = group_of(copy, {0, 2});
      EXPECT_EQ(sum_over(made, rank), 2);
      sennit_comm_destroy(made);
    }
    sennit_comm_destroy(copy);
    EXPECT_EQ(sum_over(comm, rank), 3);
  });
}

TEST(CreateGroup, ListsThatDifferAreAMismatch) {
  Ranks ranks(3);
  ranks.run([](int rank, sennit_comm_t comm) {
    sennit_comm_t copy = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &copy), SENNIT_OK);
    const std::vector<int> all = {0, 1, 2}, two = {0, 1};
    const std::vector<int>& mine = rank == 1 ? two : all;
    sennit_comm_t made = nullptr;
    EXPECT_EQ(sennit_comm_create_group(copy, mine.data(), static_cast<int>(mine.size()), 0, &made),
              SENNIT_MISMATCH)
        << "rank " << rank;
    EXPECT_EQ(made, nullptr);
    EXPECT_EQ(sennit_comm_create_group(copy, all.data(), 3, 1, &made), SENNIT_MISMATCH);
    EXPECT_EQ(sum_over(copy, rank), 3);
    sennit_comm_destroy(copy);
    EXPECT_EQ(sum_over(comm, rank), 3);
  });
}

TEST(CreateGroup, ArgumentsAreChecked) {
  Ranks ranks(2);
  ranks.run([](int rank, sennit_comm_t comm) {
    if (rank != 0) return;
    sennit_comm_t made = nullptr;
    const auto error = [&](const std::vector<int>& list, int tag) {
      EXPECT_EQ(
          sennit_comm_create_group(comm, list.data(), static_cast<int>(list.size()), tag, &made),
          SENNIT_INVALID_ARGUMENT);
      return std::string(sennit_last_error());
    };
    EXPECT_NE(error({0, 2}, 0).find("rank 2 in the list"), std::string::npos);
    EXPECT_NE(error({0, 0}, 0).find("twice"), std::string::npos);
    EXPECT_NE(error({1}, 0).find("only members call it"), std::string::npos);
    EXPECT_NE(error({0}, -1).find("tag -1"), std::string::npos);
    EXPECT_NE(error({}, 0).find("0 ranks"), std::string::npos);
    EXPECT_EQ(sennit_comm_create_group(nullptr, nullptr, 1, 0, &made), SENNIT_INVALID_ARGUMENT);
    made = group_of(comm, {0});
    EXPECT_EQ(sum_over(made, 7), 7);
    sennit_comm_destroy(made);
  });
}

}  // namespace
