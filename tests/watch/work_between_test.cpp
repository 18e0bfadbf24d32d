// work_between_test.cpp: how much of the cores a process asks for while it is in no call.
//
// ctest not-under-tsan: it has one thread
#include "watch/work_between.hpp"

#include <gtest/gtest.h>

namespace sennit::watch {
namespace {

constexpr uint64_t kMs = 1'000'000, kLookMs = 10;

TEST(WorkBetween, CountsWhatLiesBetweenLooksInTheSameStretch) {
  WorkBetween work;
  // It computes from 100 ms on.
  for (uint64_t at = 0; at <= 200; at += kLookMs)
    work.look(at * kMs, at < 100 ? 0 : (at - 100) * kMs, at >= 100);
  work.in_none(15 * kMs, 75 * kMs);   // looks at 20 and at 70
  work.in_none(95 * kMs, 101 * kMs);  // one look: nothing is known
  work.in_none(120 * kMs, 175 * kMs);
  EXPECT_DOUBLE_EQ(work.cores().value_or(-1), 0.5);  // 50 ms of 100
}

TEST(WorkBetween, TellsWhoComputesFromWhoWaits) {
  WorkBetween computes, waits;
  for (uint64_t at = 0; at <= 200; at += kLookMs) {
    computes.look(at * kMs, 2 * at * kMs, true);  // on two cores
    waits.look(at * kMs, 7 * kMs, at % 50 == 0);
  }
  computes.in_none(10 * kMs, 190 * kMs);
  waits.in_none(10 * kMs, 190 * kMs);
  EXPECT_DOUBLE_EQ(*computes.cores(), 2);
  EXPECT_DOUBLE_EQ(*waits.cores(), 0);
}

// Its processor time does not say so: others had the cores, or the machine's host did.
TEST(WorkBetween, WhoWaitsForACoreAsksForOne) {
  WorkBetween work;
  for (uint64_t at = 0; at <= 200; at += kLookMs) work.look(at * kMs, at * kMs / 3, true);
  for (uint64_t begin = 5; begin < 200; begin += 50) work.in_none(begin * kMs, (begin + 40) * kMs);
  EXPECT_DOUBLE_EQ(work.cores().value_or(-1), 1);
}

// A process that is stopped is ready to run before and behind that, and asks for no core meanwhile.
TEST(WorkBetween, AStopCountsForNothing) {
  WorkBetween work;
  for (uint64_t at = 0; at <= 100; at += kLookMs) work.look(at * kMs, 0, at == 100);
  for (uint64_t at = 5100; at <= 5200; at += kLookMs) work.look(at * kMs, 0, at == 5100);
  work.in_none(0, 5200 * kMs);
  EXPECT_DOUBLE_EQ(work.cores().value_or(-1), 0);
}

TEST(WorkBetween, SaysNothingOfPausesThatAreTooShort) {
  WorkBetween work;
  for (uint64_t at = 0; at <= 1000; at += kLookMs) work.look(at * kMs, at * kMs, true);
  for (uint64_t at = 0; at < 1000; at += kLookMs) work.in_none((at + 5) * kMs, (at + 9) * kMs);
  EXPECT_FALSE(work.cores().has_value());
}

TEST(WorkBetween, KeepsLooksForAStretchThatEndsLater) {
  WorkBetween work;
  for (uint64_t at = 0; at <= 50; at += kLookMs) work.look(at * kMs, at * kMs, true);
  work.in_none(1 * kMs, 5 * kMs);
  EXPECT_FALSE(work.cores().has_value());
  for (uint64_t at = 60; at <= 100; at += kLookMs) work.look(at * kMs, at * kMs, true);
  work.in_none(8 * kMs, 95 * kMs);
  EXPECT_DOUBLE_EQ(work.cores().value_or(0), 1);
}

TEST(WorkBetween, WhatIsLongAgoCountsForLess) {
  WorkBetween work;
  uint64_t now_ms = 0, used_ms = 0;
  const auto pass = [&](bool computes) {
    for (uint64_t n = 0; n <= 10; n++, now_ms += kLookMs) {
      work.look(now_ms * kMs, used_ms * kMs, computes);
      if (computes) used_ms += kLookMs;
    }
    work.in_none((now_ms - 110) * kMs, now_ms * kMs);
    return work.cores().value_or(-1);
  };
  for (int times = 0; times < 10; times++) pass(true);
  for (int times = 0; times < 10; times++) pass(false);
  EXPECT_LT(pass(false), 0.05);
}

TEST(WorkBetween, ForgetsTheOldestOfVeryManyLooks) {
  WorkBetween work;
  for (uint64_t at = 0; at < 100'000; at++)
    work.look(at * kMs, at < 90'000 ? 0 : at * kMs, at >= 90'000);
  work.in_none(0, 100'000 * kMs);
  EXPECT_DOUBLE_EQ(work.cores().value_or(0), 1);
}

}  // namespace
}  // namespace sennit::watch
