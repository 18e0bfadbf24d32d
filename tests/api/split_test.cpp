// Communicators made out of others: their numbers never meet, whoever splits what at the same time;
// a failure reaches also those that are still to make it; what they took is given back.
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "api/c_api.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/ranks.hpp"

using namespace std::chrono_literals;
using sennit_test::Processes;
using sennit_test::Ranks;

namespace {

// All threads of all ranks split communicators of their own at once, and use parents and children
// at once.
TEST(Split, OfSeveralCommunicatorsAtOnce) {
  constexpr int kThreads = 3, kSplits = 20;
  Ranks ranks(4);
  ASSERT_TRUE(ranks.ok());
  std::vector<std::set<uint32_t>> numbers(static_cast<size_t>(ranks.size()));
  std::vector<std::mutex> mutexes(numbers.size());
  ranks.run([&](int rank, sennit_comm_t world) {
    const auto me = static_cast<size_t>(rank);
    std::vector<sennit_comm_t> twins(kThreads);
    for (sennit_comm_t& twin : twins) ASSERT_EQ(sennit_comm_dup(world, &twin), SENNIT_OK);
    const auto use = [&](int thread) {
      const sennit_comm_t twin = twins[static_cast<size_t>(thread)];
      for (int i = 0; i < kSplits; i++) {
        sennit_comm_t half = nullptr;
        ASSERT_EQ(sennit_comm_split(twin, (rank + i) % 2, rank, &half), SENNIT_OK)
            << sennit_last_error();
        int sum = 100 * thread + rank, all = sum;
        ASSERT_EQ(sennit_all_reduce(&sum, &sum, 1, SENNIT_INT32, SENNIT_SUM, half), SENNIT_OK)
            << sennit_last_error();
        EXPECT_EQ(sum, 200 * thread + (rank % 2 ? 1 + 3 : 0 + 2));
        ASSERT_EQ(sennit_all_reduce(&all, &all, 1, SENNIT_INT32, SENNIT_SUM, twin), SENNIT_OK);
        EXPECT_EQ(all, 400 * thread + 6);
        {
          const std::lock_guard lock(mutexes[me]);
          EXPECT_TRUE(numbers[me].insert(sennit::internal(half).id()).second);
        }
        sennit_comm_destroy(half);
      }
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++) threads.emplace_back(use, t);
    for (std::thread& thread : threads) thread.join();
    for (const sennit_comm_t twin : twins) sennit_comm_destroy(twin);
  });
}

// Numbers are used up evenly: a long line of descendants takes one after the other.
TEST(Split, OfSplitsOfSplits) {
  Ranks ranks(3);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t world) {
    sennit_comm_t parent = world;
    for (uint32_t i = 0; i < 40; i++) {
      sennit_comm_t child = nullptr;
      ASSERT_EQ(sennit_comm_split(parent, 0, rank, &child), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(sennit::internal(child).id(), 2 + i);
      if (parent != world) sennit_comm_destroy(parent);
      parent = child;
    }
    sennit_comm_destroy(parent);
  });
}

// Rank 3 aborts what it has just made while others, whom rank 0's late messages keep in the split,
// are still to make it: they learn of it all the same.
TEST(Split, AbortedBeforeAllHaveMadeIt) {
  Processes ranks(
      4,
      [](int rank) -> std::string {
        sennit_comm_t world = nullptr, part = nullptr;
        if (sennit_comm_init_env(&world, nullptr) != SENNIT_OK) return sennit_last_error();
        std::string text;
        for (int i = 0; i < 4; i++) {
          if (sennit_comm_dup(world, &part) != SENNIT_OK) return sennit_last_error();
          if (rank == 3) sennit_comm_abort(part);
          int x = 0;
          text += sennit_status_name(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, part));
          text += "; ";
          sennit_comm_destroy(part);
        }
        sennit_comm_destroy(world);
        return text;
      },
      {{"SENNIT_FAULTS", "rank=0,delay=400ms"},
       {"SENNIT_ARRIVAL_TIMEOUT", "8000"},
       {"SENNIT_LOG", "error"}});
  for (const auto& report : ranks.reports(240s))
    EXPECT_EQ(report, "aborted; aborted; aborted; aborted; ");
}

// A failure that nobody is about to make the communicator of is forgotten, whatever comes later.
TEST(Split, RemembersFailuresNoLongerThanTheyMatter) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t world) {
    const std::shared_ptr<sennit::Context> context = sennit::internal(world).shared_context();
    const auto made = [&](uint32_t number) {
      return *sennit::Communicator::create(context, {0, 1}, number);
    };
    const auto abort_on_rank_0 = [&](uint32_t number) {
      sennit_comm_t fence = nullptr;  // what rank 0 says later of another one comes later
      ASSERT_EQ(sennit_comm_dup(world, &fence), SENNIT_OK);
      if (rank == 0) {
        made(number)->abort();
        sennit_comm_abort(fence);
      }
      while (sennit_comm_get_async_error(fence) == SENNIT_OK) std::this_thread::yield();
      sennit_comm_destroy(fence);
    };
    {
      const sennit::Registry::Making making(context->registry());
      abort_on_rank_0(1000);
      if (rank == 1) {
        EXPECT_EQ(made(1000)->status().kind(), SENNIT_ABORTED);
      }
      abort_on_rank_0(1001);
    }
    if (rank == 1) {
      EXPECT_TRUE(made(1001)->status().ok());
    }
    abort_on_rank_0(1002);
    if (rank == 1) {
      EXPECT_TRUE(made(1002)->status().ok());
    }
  });
}

class Lives : public testing::TestWithParam<const char*> {};

// Whoever makes and destroys communicators for ever does not grow, whether they end well or badly.
TEST_P(Lives, GiveBackAllThatTheyTook) {
#if defined(SENNIT_SANITIZED)
  GTEST_SKIP() << "SKIPPED: the sanitizer's allocator does not tell what is in use";
#endif
  Processes ranks(
      3,
      [](int rank) -> std::string {
        // of hundreds of aborts
        if (!std::freopen("/dev/null", "w", stderr)) return "no /dev/null";
        sennit_comm_t world = nullptr;
        if (sennit_comm_init_env(&world, nullptr) != SENNIT_OK) return sennit_last_error();
        const auto cycles = [&](int count) {
          std::vector<int> x(300, 1), y(900);
          for (int i = 0; i < count; i++) {
            sennit_comm_t part = nullptr;
            if (sennit_comm_split(world, i % 2 ? 0 : rank % 2, rank, &part) != SENNIT_OK)
              return false;
            // A root is done before the others, and credit comes back to what it has left.
            const bool aborts = i % 8 == 1;
            sennit_status_t status = SENNIT_OK;
            for (int k = 0; k < 2 && status == SENNIT_OK; k++)
              status = sennit_broadcast(x.data(), x.data(), x.size(), SENNIT_INT32, 0, part);
            if (status != SENNIT_OK && !aborts) return false;
            if (aborts && rank == 0) sennit_comm_abort(part);
            while (aborts && status == SENNIT_OK)
              status = sennit_all_gather(x.data(), y.data(), x.size(), SENNIT_INT32, part);
            sennit_comm_destroy(part);
          }
          return sennit_barrier(world) == SENNIT_OK;
        };
        if (!cycles(800)) return sennit_last_error();
        // What the library does by the clock takes its memory once, sooner or later. Whatever each
        // cycle leaves grows every time.
        std::string report;
        int some_grew = 1;  // so that all go on, or none
        for (int tries = 0; tries < 3 && some_grew != 0; tries++) {
          const size_t before = mallinfo2().uordblks;
          if (!cycles(1600)) return sennit_last_error();
          const size_t after = mallinfo2().uordblks;
          report = after < before + 32 * 1024 ? "constant"
                                              : fmt::format("grew by {} bytes", after - before);
          some_grew = report != "constant";
          sennit_all_reduce(&some_grew, &some_grew, 1, SENNIT_INT32, SENNIT_MAX, world);
        }
        sennit_comm_finalize(world);
        sennit_comm_destroy(world);
        return report;
      },
      {{"SENNIT_TRANSPORTS", GetParam()}});
  for (const auto& report : ranks.reports(240s)) EXPECT_EQ(report, "constant");
}

INSTANTIATE_TEST_SUITE_P(Transports, Lives, testing::Values("shm", "tcp", "ucx"),
                         [](const auto& named) { return std::string(named.param); });

}  // namespace
