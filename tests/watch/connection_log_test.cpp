// connection_log_test.cpp: what is kept of connections, look after look: the latest, and what it is
// held against.
//
// ctest not-under-tsan: it has one thread
#include "watch/connection_log.hpp"

#include <gtest/gtest.h>

namespace sennit::watch {
namespace {

constexpr uint64_t kS = 1'000'000'000;

ConnectionStatistics at(int peer, uint64_t when_s, uint64_t segments, uint64_t again = 0,
                        uint64_t busy_us = 0) {
  ConnectionStatistics one;
  one.peer = peer;
  one.counters.when_ns = when_s * kS;
  one.counters.segments = segments;
  one.counters.segments_again = again;
  one.counters.busy_us = busy_us;
  return one;
}

TEST(ConnectionLog, WhatHappensNowIsNotLostInWhatWas) {
  ConnectionLog log;
  for (uint64_t s = 1; s <= 100; s++) log.look(std::vector{at(3, s, 1000 * s)});
  // From the 101st second on a tenth is lost.
  for (uint64_t s = 101; s <= 125; s++) log.look(std::vector{at(3, s, 1000 * s, 100 * (s - 100))});
  ASSERT_EQ(log.records(9).size(), 1u);
  const ConnectionRecord record = log.records(9)[0];
  EXPECT_EQ(record.latest.counters.segments, 125'000u);
  const ConnectionCounters lately = record.lately();
  EXPECT_EQ(lately.segments_again * 10, lately.segments) << "of a time in which all of it was bad";
  EXPECT_GE(lately.segments, 10'000u);
  EXPECT_LE(lately.segments, 20'000u);
}

TEST(ConnectionLog, TheFirstStretchBeginsWithTheConnection) {
  ConnectionLog log;
  log.look(std::vector{at(3, 50, 0)});
  EXPECT_TRUE(log.records(9).empty()) << "nothing was sent on it";
  log.look(std::vector{at(3, 51, 70, 7)});
  log.look(std::vector{at(3, 52, 90, 9)});
  EXPECT_EQ(log.records(9)[0].lately().segments, 90u);
  EXPECT_EQ(log.records(9)[0].lately().segments_again, 9u);
}

TEST(ConnectionLog, OfWhatIsIdleOrGoneTheLastTimeOfUseStays) {
  ConnectionLog log;
  for (uint64_t s = 1; s <= 30; s++) log.look(std::vector{at(3, s, 10 * s), at(4, s, 10 * s)});
  const std::vector<ConnectionRecord> before = log.records(9);
  for (uint64_t s = 31; s <= 90; s++) log.look(std::vector{at(3, s, 300)});
  EXPECT_EQ(log.records(9), before);
}

TEST(ConnectionLog, OneThatWasMadeAgainBeginsAnew) {
  ConnectionLog log;
  for (uint64_t s = 1; s <= 30; s++) log.look(std::vector{at(3, s, 10 * s, s)});
  log.look(std::vector{at(3, 31, 5)});
  EXPECT_EQ(log.records(9)[0].lately().segments, 5u);
  EXPECT_EQ(log.records(9)[0].lately().segments_again, 0u);
}

// The kernel counts them in 32 bits.
TEST(ConnectionLog, SegmentsAreCountedOnBeyond32Bits) {
  constexpr uint64_t kStep = 900'000'000, kAgain = 500'000'000, kMask = 0xffff'ffff;
  ConnectionLog log;
  for (uint64_t s = 1; s <= 30; s++)
    log.look(std::vector{at(3, s, (kStep * s) & kMask, (kAgain * s) & kMask, 1000 * s)});
  const ConnectionRecord record = log.records(9)[0];
  EXPECT_EQ(record.latest.counters.segments, 30 * kStep);
  EXPECT_EQ(record.latest.counters.segments_again, 30 * kAgain);
  const ConnectionCounters lately = record.lately();
  EXPECT_EQ(lately.segments * 1000, lately.busy_us * kStep) << "of the same stretch";
  EXPECT_EQ(lately.segments_again * kStep, lately.segments * kAgain);
}

TEST(ConnectionLog, OfTooManyThoseThatWereBusyLongest) {
  ConnectionLog log;
  std::vector<ConnectionStatistics> all;
  for (int peer = 0; peer < 10; peer++)
    all.push_back(at(peer, 1, 1, 0, static_cast<uint64_t>((peer * 7) % 10)));
  log.look(all);
  const std::vector<ConnectionRecord> records = log.records(3);
  ASSERT_EQ(records.size(), 3u);
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(records[i].latest.counters.busy_us, 9 - i);
}

}  // namespace
}  // namespace sennit::watch
