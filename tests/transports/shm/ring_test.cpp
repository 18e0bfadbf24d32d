// ring_test.cpp: the ring of the shm transport, both ends of it in one process: what goes in comes
// out in its order, a full ring says so, and room comes back; and with a thread on each side.
#include "transports/shm/ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/seed.hpp"

namespace sennit::shm {
namespace {

constexpr Geometry kGeometry = {64, 4096};

class Ring : public testing::Test {
 protected:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  Ring() : memory_(std::aligned_alloc(kLine, kGeometry.ring_bytes())) {
    std::memset(memory_.get(), 0, kGeometry.ring_bytes());
  }

  // False: the ring is full.
  bool put(uint64_t number, size_t payload_bytes, bool control = false) {
    const Producer::Reserved room = producer_.reserve(payload_bytes, control);
    if (!room.slot) return false;
    room.slot->kind = SlotKind::eager;
    room.slot->signature = number;
    room.slot->payload_bytes = static_cast<uint32_t>(payload_bytes);
    for (size_t i = 0; i < payload_bytes; i++) room.payload[i] = byte_of(number, i);
    producer_.publish(room.slot);
    return true;
  }
  // The next message's number, which is checked to have come whole; -1: there is none.
  int64_t take() {
    const Slot* const slot = consumer_.peek();
    if (!slot) return -1;
    const uint64_t number = slot->signature;
    const std::byte* const payload = consumer_.payload(*slot);
    for (size_t i = 0; i < slot->payload_bytes; i++)
      if (payload[i] != byte_of(number, i)) {
        ADD_FAILURE() << "message " << number << ": byte " << i << " of " << slot->payload_bytes;
        break;
      }
    consumer_.pop(*slot);
    return static_cast<int64_t>(number);
  }
  static std::byte byte_of(uint64_t number, size_t i) {
    return static_cast<std::byte>(number * 31 + i);
  }

  const std::unique_ptr<void, Free> memory_;
  Producer producer_{memory_.get(), kGeometry};
  Consumer consumer_{memory_.get(), kGeometry};
};

TEST_F(Ring, NothingIsThereBeforeItWasPublished) {
  EXPECT_EQ(consumer_.peek(), nullptr);
  const Producer::Reserved room = producer_.reserve(100, false);
  ASSERT_NE(room.slot, nullptr);
  EXPECT_EQ(consumer_.peek(), nullptr);
  room.slot->payload_bytes = 100;
  producer_.publish(room.slot);
  EXPECT_EQ(consumer_.peek(), room.slot);
  EXPECT_EQ(consumer_.peek(), room.slot) << "it stays until it is popped";
  EXPECT_EQ(consumer_.payload(*room.slot), room.payload);
}

TEST_F(Ring, TheLastSlotsAreForControlMessages) {
  uint64_t number = 0;
  while (put(number, 0)) number++;
  EXPECT_EQ(number, kGeometry.slots - kControlReserve);
  while (put(number, 0, true)) number++;
  EXPECT_EQ(number, kGeometry.slots);
  for (uint64_t i = 0; i < number; i++) ASSERT_EQ(take(), static_cast<int64_t>(i));
  EXPECT_EQ(take(), -1);
  EXPECT_TRUE(put(number, 0)) << "its room has come back";
}

TEST_F(Ring, PayloadIsWholeAlsoWhereTheAreaEnds) {
  uint64_t put_so_far = 0, taken = 0;
  for (const size_t bytes : {1, 63, 64, 65, 1000, 1024})
    for (int i = 0; i < 40; i++) {
      while (!put(put_so_far, bytes)) ASSERT_EQ(take(), static_cast<int64_t>(taken++));
      put_so_far++;
    }
  while (taken < put_so_far) ASSERT_EQ(take(), static_cast<int64_t>(taken++));
}

TEST_F(Ring, TheLargestPayloadFitsIntoAnEmptyRingWhereverItIs) {
  const size_t largest = kGeometry.largest_payload();
  for (uint64_t i = 0; i < 200; i++) {
    ASSERT_TRUE(put(i, i % 2 == 0 ? largest : 1 + i % 64));
    ASSERT_EQ(take(), static_cast<int64_t>(i));
  }
}

TEST_F(Ring, WhatIsHeldIsSeenByTheProducer) {
  EXPECT_FALSE(producer_.held(3));
  consumer_.set_held(3, true);
  EXPECT_TRUE(producer_.held(3));
  EXPECT_TRUE(producer_.held(3 + kHeldBits)) << "they share a bit";
  EXPECT_FALSE(producer_.held(4));
  consumer_.set_held(3, false);
  EXPECT_FALSE(producer_.held(3));
}

TEST_F(Ring, AThreadOnEachSide) {
  constexpr uint64_t kMessages = 20'000;
  std::mt19937_64 random(sennit_test::seed());
  std::vector<size_t> sizes(kMessages);
  for (size_t& bytes : sizes) bytes = random() % 4 == 0 ? random() % 1024 : random() % 30;
  std::thread producer([&] {
    for (uint64_t i = 0; i < kMessages; i++)
      while (!put(i, sizes[i])) std::this_thread::yield();
  });
  for (uint64_t i = 0; i < kMessages;) {
    const int64_t number = take();
    if (number < 0) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(number, static_cast<int64_t>(i));
    i++;
  }
  producer.join();
  EXPECT_EQ(take(), -1);
}

}  // namespace
}  // namespace sennit::shm
