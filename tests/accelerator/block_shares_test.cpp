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

const void* stream(uintptr_t number) { return reinterpret_cast<const void*>(number); }

TEST(BlockShares, ManyStreamsFindRoom) {
  BlockShares shares(kRoom);
  unsigned out = 0;
  for (uintptr_t s = 1; s <= 60; s++) {
    const unsigned blocks = shares.take(stream(s), 32);
    EXPECT_GE(blocks, 1u);
    out += blocks;
  }
  EXPECT_LE(out, kRoom);
}

TEST(BlockShares, CallsOfOneStreamAreOneAfterTheOther) {
  BlockShares shares(kRoom);
  for (int call = 0; call < 100; call++) EXPECT_EQ(shares.take(stream(1), 32), 32u) << call;
  EXPECT_EQ(shares.take(stream(2), 200), 17u);
  for (int call = 0; call < 100; call++) shares.give_back(stream(1));
  EXPECT_EQ(shares.take(stream(3), 200), 24u);
}

TEST(BlockShares, AStreamMayGrow) {
  BlockShares shares(kRoom);
  EXPECT_EQ(shares.take(stream(1), 1), 1u);
  EXPECT_EQ(shares.take(stream(1), 200), 66u);
  EXPECT_EQ(shares.take(stream(2), 0), 1u);
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
      out += shares.take(names.back(), 32);
      changed.notify_all();
      changed.wait(lock, [&] { return names.size() == threads.size(); });  // all live at once
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(out, kRoom);
  EXPECT_GE(out, threads.size());
  for (const void* const name : names) shares.give_back(name);
  EXPECT_EQ(shares.take(stream(1), 200), kRoom / 2);
}

}  // namespace
}  // namespace sennit::cuda
