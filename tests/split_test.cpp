// Communicators made out of others: their numbers never meet, whoever splits what at the same time.
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "c_api.hpp"
#include "ranks.hpp"

using sennit_test::Ranks;

namespace {

// All threads of all ranks split communicators of their own at once, and use parents and children at once.
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
        ASSERT_EQ(sennit_comm_split(twin, (rank + i) % 2, rank, &half), SENNIT_OK) << sennit_last_error();
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

}  // namespace
