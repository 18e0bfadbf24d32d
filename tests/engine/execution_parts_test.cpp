// execution_parts_test.cpp: what an execution and the engine are made of, each alone: the queue of
// sends to a peer, steps that send nothing, the watch over stalls, and sleep.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "engine/local_steps.hpp"
#include "engine/send_queue.hpp"
#include "engine/sleeper.hpp"
#include "engine/stall_watch.hpp"
#include "tests/support/eventually.hpp"

namespace sennit {
namespace {

TEST(SendQueue, TheWidestTierGoesFirstThenTheLowestChunk) {
  SendQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.take(SIZE_MAX));
  queue.push({0, 9, 1}, 0, 0);
  queue.push({1, 2, 1}, 1, 5);
  queue.push({2, 3, 1}, 1, 4);
  queue.push({3, 1, 1}, 1, 4);
  for (const uint32_t lane : {3u, 2u, 1u, 0u}) {
    const auto next = queue.take(SIZE_MAX);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->lane, lane);
  }
  EXPECT_TRUE(queue.empty());
}

TEST(SendQueue, NoMoreIsUnderWayThanTheLimitAllowsButTwoMessages) {
  constexpr size_t kLimit = 100;
  SendQueue queue;
  for (uint32_t step = 0; step < 4; step++) queue.push({0, step, 90}, 0, 0);
  EXPECT_TRUE(queue.take(kLimit));
  EXPECT_TRUE(queue.take(kLimit)) << "the wire never falls idle";
  EXPECT_FALSE(queue.take(kLimit));
  EXPECT_FALSE(queue.empty());
  queue.done(90);
  EXPECT_TRUE(queue.take(kLimit));
  EXPECT_FALSE(queue.take(kLimit));
  queue.clear();
  EXPECT_TRUE(queue.empty());
  for (uint32_t step = 0; step < 5; step++) queue.push({0, step, 25}, 0, 0);
  for (int i = 0; i < 4; i++) EXPECT_TRUE(queue.take(kLimit));
  EXPECT_FALSE(queue.take(kLimit));
}

TEST(LocalSteps, OperandsMayLieInPiecesThatDoNotMeet) {
  constexpr uint64_t kBlock = 4;  // elements
  const std::vector<Range> in_order = {{0, 0, kUnits}, {2, 0, kUnits}};
  const std::vector<Range> swapped = {{3, 0, kUnits}, {1, 0, kUnits}};
  ProgramBuilder builder;
  const std::array<Operand, 2> sources = {builder.input(in_order), builder.input(swapped)};
  builder.reduce(builder.output(in_order), sources, true);
  builder.copy(builder.output(swapped), builder.input(in_order));
  Request request;
  request.type = DataType::int32;
  const auto prepared = prepare(request, {}, builder.finish());
  DataPlaces places(prepared->program, sizeof(int32_t));
  std::array<int32_t, 4 * kBlock> input, output{};
  for (size_t i = 0; i < input.size(); i++) input[i] = static_cast<int32_t>(i);
  places.buffers.input = reinterpret_cast<const std::byte*>(input.data());
  places.buffers.output = reinterpret_cast<std::byte*>(output.data());
  constexpr std::array<int32_t, 4> kInOrder = {0, 1, 2, 3};
  places.buffers.input_layout.count = places.buffers.output_layout.count = kBlock;
  places.buffers.input_layout.places = places.buffers.output_layout.places = kInOrder.data();
  LocalSteps steps(*prepared, places);
  SlotPlaces slots;
  slots.chunk = {0, 1};
  EXPECT_EQ(steps.run(slots, prepared->program.steps[0]), 2 * kBlock * sizeof(int32_t));
  EXPECT_EQ(steps.run(slots, prepared->program.steps[1]), 2 * kBlock * sizeof(int32_t));
  // Blocks 0 and 2 are sums with 3 and 1; blocks 3 and 1 are copies of 0 and 2.
  const std::array<int32_t, 4 * kBlock> expected = {12, 14, 16, 18, 8, 9, 10, 11,
                                                    12, 14, 16, 18, 0, 1, 2,  3};
  EXPECT_EQ(output, expected);
}

constexpr uint64_t kLongNs = 50'000'000;  // a sleep that nothing ends

struct Watched {
  uint64_t last_progress_ns = 0, last_report_ns = 0, stalled_ns = 0;
  bool awaited = true;
  bool is_awaited() const { return awaited; }
};

TEST(StallWatch, TellsOfWhatHasNotMovedAndCountsWhatWasWaited) {
  constexpr uint64_t kSecond = 1'000'000'000;
  StallWatch watch(kSecond);
  Watched still, moving, unawaited;
  unawaited.awaited = false;
  const std::vector<Watched*> running = {&still, &moving, &unawaited};
  uint64_t now = 100 * kSecond;
  still.last_progress_ns = unawaited.last_progress_ns = now;
  int told = 0;
  const auto look = [&] {
    moving.last_progress_ns = now;
    return watch.look(running, now, [&](Watched& stalls) { told += &stalls != &moving; });
  };
  EXPECT_FALSE(look());
  now += kSecond - 1;
  EXPECT_FALSE(look());
  now++;
  EXPECT_FALSE(look()) << "not so soon again";
  now += kSecond;
  EXPECT_TRUE(look());
  EXPECT_EQ(told, 2);
  EXPECT_EQ(still.stalled_ns, 2 * kSecond);
  EXPECT_EQ(unawaited.stalled_ns, 0u);
  now += 10 * kSecond;  // this process did not run: two periods count
  EXPECT_TRUE(look());
  EXPECT_EQ(still.stalled_ns, 4 * kSecond);
  still.awaited = false;  // between two slices of one wait
  now += kSecond;
  EXPECT_TRUE(look());
  EXPECT_EQ(still.stalled_ns, 4 * kSecond);
  still.awaited = true;
  still.last_progress_ns = now;
  now += kSecond;
  EXPECT_TRUE(look());
  EXPECT_EQ(still.stalled_ns, kSecond) << "it had moved";
}

// How long it takes not to sleep where there was a wake since the last look.
uint64_t time_of_wakes_since() {
  Sleeper sleeper;
  const Routes::Descriptors none{};  // all have one: sleeps are long
  const uint64_t before = sleeper.wakes();
  sleeper.wake();
  const uint64_t begin = now_ns();
  for (int i = 0; i < 10; i++) sleeper.sleep(none, 0, before);
  const uint64_t took = now_ns() - begin;
  EXPECT_EQ(sleeper.wakes(), before + 1);
  return took;
}

TEST(Sleeper, AWakeSinceTheLastLookIsNotSleptOver) {
  EXPECT_TRUE(sennit_test::eventually([] { return time_of_wakes_since() < 5 * kLongNs; }));
}

TEST(Sleeper, WakesThatNobodySleptThroughEndNoLaterSleep) {
  Sleeper sleeper;
  for (int i = 0; i < 1000; i++) sleeper.wake();
  const uint64_t begin = now_ns();
  for (int i = 0; i < 3; i++) sleeper.sleep({}, 0, sleeper.wakes());
  EXPECT_GE(now_ns() - begin, 3 * kLongNs);
}

// How long it takes until all of some that sleep, or are about to, have ended.
uint64_t time_to_wake_all() {
  constexpr int kSleepers = 4;
  Sleeper sleeper;
  std::atomic<int> about_to_sleep{0};
  std::vector<std::thread> others;
  for (int i = 0; i < kSleepers; i++)
    others.emplace_back([&] {
      const uint64_t wakes = sleeper.wakes();
      about_to_sleep++;
      sleeper.sleep({}, 0, wakes);
    });
  while (about_to_sleep < kSleepers) std::this_thread::yield();
  const uint64_t begin = now_ns();
  sleeper.wake();
  for (std::thread& other : others) other.join();
  return now_ns() - begin;
}

TEST(Sleeper, AllWhoSleepAreWoken) {
  EXPECT_TRUE(sennit_test::eventually([] { return time_to_wake_all() < kLongNs / 2; }));
}

TEST(Sleeper, NapsAreShortWhereATransportCannotSay) {
  Sleeper sleeper;
  Routes::Descriptors found;
  found.all = false;
  const uint64_t begin = now_ns();
  for (uint32_t naps = 0; naps < 10; naps++) sleeper.sleep(found, naps, sleeper.wakes());
  const uint64_t slept = now_ns() - begin;
  EXPECT_GE(slept, 10 * 20'000u);
}

}  // namespace
}  // namespace sennit
