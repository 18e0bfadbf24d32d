// block_shares_test.cpp: calls in many streams all find room on a device.
#include "accelerator/cuda/block_shares.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "accelerator/cuda/stream_names.hpp"

namespace sennit::cuda {
namespace {

constexpr unsigned kRoom = 132;
constexpr StreamOwner kRank{7, 0};

const void* stream(uintptr_t number) { return reinterpret_cast<const void*>(number); }

TEST(BlockShares, ManyStreamsFindRoom) {
  BlockShares shares(kRoom);
  unsigned out = 0;
  for (uintptr_t s = 1; s <= 60; s++) {
    const unsigned blocks = shares.take(stream(s), kRank, 32);
    EXPECT_GE(blocks, 1u);
    out += blocks;
  }
  EXPECT_LE(out, kRoom);
}

TEST(BlockShares, CallsOfOneStreamAreOneAfterTheOther) {
  BlockShares shares(kRoom);
  for (int call = 0; call < 100; call++) EXPECT_EQ(shares.take(stream(1), kRank, 32), 32u) << call;
  EXPECT_EQ(shares.take(stream(2), kRank, 200), 17u);
  for (int call = 0; call < 100; call++) shares.give_back(stream(1), kRank);
  EXPECT_EQ(shares.take(stream(3), kRank, 200), 24u);
}

// They capture there one after the other, and launch their graphs in streams of their own, where
// each waits for what the last of them does.
TEST(BlockShares, RanksThatCaptureInOneStreamFindRoom) {
  BlockShares shares(kRoom);
  unsigned out = 0;
  for (int rank = 0; rank < 8; rank++) {
    const unsigned blocks = shares.take(stream(1), {7, rank}, 32);
    EXPECT_GE(blocks, 1u);
    EXPECT_EQ(shares.take(stream(1), {7, rank}, blocks), blocks);  // a second call of the graph
    out += blocks;
  }
  EXPECT_LE(out, kRoom);
  EXPECT_LT(shares.take(stream(2), kRank, 200), kRoom / 4);
  for (int rank = 0; rank < 8; rank++)
    for (int call = 0; call < 2; call++) shares.give_back(stream(1), {7, rank});
  shares.give_back(stream(2), kRank);
  EXPECT_EQ(shares.take(stream(3), kRank, 200), kRoom / 2);
}

TEST(BlockShares, AStreamMayGrow) {
  BlockShares shares(kRoom);
  EXPECT_EQ(shares.take(stream(1), kRank, 1), 1u);
  EXPECT_EQ(shares.take(stream(1), kRank, 200), 66u);
  EXPECT_EQ(shares.take(stream(2), kRank, 0), 1u);
}

TEST(BlockShares, StreamsThatThreadsNameAlikeAreSeveral) {
  BlockShares shares(kRoom);
  unsigned out = 0;
  const void* const per_thread = stream(2);
  std::vector<std::thread> threads(60);
  std::vector<const void*> names;
  std::mutex mutex;
  std::condition_variable changed;
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      std::unique_lock lock(mutex);
      names.push_back(name_of(per_thread));
      out += shares.take(names.back(), kRank, 32);
      changed.notify_all();
      changed.wait(lock, [&] { return names.size() == threads.size(); });  // all live at once
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(out, kRoom);
  EXPECT_GE(out, threads.size());
  for (const void* const name : names) shares.give_back(name, kRank);
  EXPECT_EQ(shares.take(stream(1), kRank, 200), kRoom / 2);
}

}  // namespace
}  // namespace sennit::cuda
