// summary_test.cpp: what is told of a rank's events: whole calls, what came from other hosts, and
// how long the rank was in no call.
// ctest not-under-tsan: it has one thread
#include "watch/summary.hpp"

#include <gtest/gtest.h>

namespace sennit::watch {
namespace {

constexpr uint64_t kPlan = 0xabcdef0123456789;
constexpr uint64_t kMs = 1'000'000;

TraceEvent call(EventKind kind, uint32_t seq, uint64_t at_ns, uint64_t took_ns = 0) {
  TraceEvent event;
  event.comm = 1;
  event.seq = seq;
  event.kind = kind;
  event.posted_ns = at_ns;
  event.set_plan(kPlan);
  event.set_times({.last_ns = took_ns});
  return event;
}

// Posted early; there at `there_ns`, its first byte `moved_ns` before.
TraceEvent message(int peer, uint32_t seq, uint64_t there_ns, uint64_t moved_ns, uint32_t bytes) {
  TraceEvent event;
  event.comm = 1;
  event.seq = seq;
  event.kind = EventKind::recv;
  event.peer = peer;
  event.tier = 1;
  event.bytes = bytes;
  event.posted_ns = there_ns - 50 * kMs;
  event.set_times({.first_ns = 50 * kMs - moved_ns, .last_ns = 50 * kMs});
  return event;
}

TEST(Summary, SumsWholeCallsUp) {
  Summary summary({false, true, false});
  for (uint32_t seq = 1; seq <= 3; seq++) {
    const uint64_t begin = seq * 200 * kMs;
    summary.add(call(EventKind::call_begin, seq, begin));
    summary.add(message(1, seq, begin + 60 * kMs, 10 * kMs, 4000));
    summary.add(message(1, seq, begin + 65 * kMs, 10 * kMs, 4000));  // behind the one before
    summary.add(message(2, seq, begin + 70 * kMs, 10 * kMs, 500));   // of this host
    summary.add(call(EventKind::call_end, seq, begin + 150 * kMs, 150 * kMs));
  }
  const Digest digest = summary.take(kMs);
  ASSERT_EQ(digest.plans.size(), 1u);
  const DigestPlan& plan = digest.plans[0];
  EXPECT_EQ(plan.plan, kPlan);
  EXPECT_EQ(plan.calls, 3u);
  EXPECT_EQ(plan.alone, 3u);
  EXPECT_GT(plan.quickest_ns, 0u);
  EXPECT_LE(3 * plan.quickest_ns, plan.alone_ns);
  EXPECT_EQ(plan.first, 1u);
  EXPECT_EQ(plan.last, 3u);
  EXPECT_EQ(plan.in_calls_ns, 450 * kMs);
  EXPECT_EQ(plan.tier_bytes[1], 3 * 8500u);
  ASSERT_EQ(plan.edges.size(), 1u);
  EXPECT_EQ(plan.edges[0], (DigestEdge{1, 24000, 45 * kMs}));
  ASSERT_EQ(digest.paces.size(), 1u);
  EXPECT_EQ(digest.paces[0], (DigestPace{1, 2, 50 * kMs, 200 * kMs}));
  EXPECT_TRUE(summary.take(kMs).plans.empty());
}

TEST(Summary, WhatASenderWaitedIsNoService) {
  Summary summary({false, true});
  summary.add(call(EventKind::call_begin, 1, 100 * kMs));
  // Its first byte left late: the sender had it ready for 2 ms, and then it stood in queues for 5.
  TraceEvent first = message(1, 1, 160 * kMs, 1 * kMs, 1000);
  first.flags |= kEventKnowsItsWait;
  first.sender_clock_us = 1'000'000;
  summary.add(first);
  TraceEvent second = message(1, 1, 260 * kMs, 1 * kMs, 1000);
  second.flags |= kEventKnowsItsWait;
  second.sender_waited_us = 2000;
  second.sender_clock_us = 1'000'000 + 95'000;
  summary.add(second);
  summary.add(call(EventKind::call_end, 1, 300 * kMs, 200 * kMs));
  const Digest digest = summary.take(kMs);
  ASSERT_EQ(digest.plans.at(0).edges.size(), 1u);
  EXPECT_EQ(digest.plans[0].edges[0].service_ns, (1 + 1 + 2 + 5) * kMs);
}

// The two clocks came apart by 5 ms in half an hour without messages, between two calls or within
// the second of them: that is no queue.
TEST(Summary, ClocksThatDriftWhileNothingIsSentAreNoService) {
  // Multiples of 8 ms are exact also in an event that is so long.
  constexpr uint64_t kTick = 8 * kMs, kIdle = 225'000 * kTick, kIdleUs = 1'800'000'000;
  for (const bool posted_before : {false, true}) {
    Summary summary({false, true});
    for (const uint32_t seq : {1u, 2u}) {
      const uint64_t idle_ns = seq == 1 ? 0 : kIdle;
      const uint64_t posted_ns = seq == 2 && posted_before ? 40 * kTick : idle_ns + 10 * kTick;
      const uint64_t first_ns = idle_ns + 20 * kTick - posted_ns;
      summary.add(call(EventKind::call_begin, seq, posted_ns));
      TraceEvent there = message(1, seq, 0, 0, 1000);
      there.posted_ns = posted_ns;
      there.set_times({.first_ns = first_ns, .last_ns = first_ns + kTick});
      there.flags |= kEventKnowsItsWait;
      there.sender_clock_us = 1'000'000 + (seq == 1 ? 0 : kIdleUs - 5'000);
      summary.add(there);
      summary.add(call(EventKind::call_end, seq, idle_ns + 30 * kTick, kTick));
    }
    const Digest digest = summary.take(kMs);
    ASSERT_EQ(digest.plans.at(0).edges.size(), 1u);
    EXPECT_EQ(digest.plans[0].edges[0].service_ns, 2 * kTick) << posted_before;
  }
}

TEST(Summary, CallsThatOverlapAreNotAlone) {
  Summary summary({false, true});
  summary.add(call(EventKind::call_begin, 1, 100 * kMs));
  summary.add(call(EventKind::call_begin, 2, 110 * kMs));
  summary.add(call(EventKind::call_end, 1, 150 * kMs, 50 * kMs));
  summary.add(call(EventKind::call_end, 2, 160 * kMs, 50 * kMs));
  const Digest digest = summary.take(kMs);
  EXPECT_EQ(digest.plans.at(0).calls, 2u);
  EXPECT_EQ(digest.plans[0].alone, 0u);
  EXPECT_TRUE(digest.paces.empty()) << "one began before the other had ended";
}

TEST(Summary, CallsOfWhichSomethingWasMissedDoNotCount) {
  Summary summary({false, true});
  summary.add(call(EventKind::call_begin, 1, 100 * kMs));
  summary.gap();
  summary.add(message(1, 1, 160 * kMs, 1 * kMs, 1000));
  summary.add(call(EventKind::call_end, 1, 200 * kMs, 100 * kMs));
  summary.add(call(EventKind::call_begin, 2, 210 * kMs));
  summary.add(call(EventKind::call_end, 2, 220 * kMs, 10 * kMs));
  const Digest digest = summary.take(kMs);
  EXPECT_EQ(digest.plans.at(0).calls, 1u);
  EXPECT_EQ(digest.plans[0].first, 2u);
}

TEST(Summary, TellsWhenTheRankWasInNoCall) {
  Summary summary({false, true});
  summary.add(call(EventKind::call_begin, 1, 100 * kMs));
  summary.add(call(EventKind::call_end, 1, 200 * kMs, 100 * kMs));
  summary.add(call(EventKind::call_begin, 2, 250 * kMs));
  summary.add(call(EventKind::call_end, 2, 300 * kMs, 50 * kMs));
  const std::vector<Between> in_none = summary.take_in_none();
  ASSERT_EQ(in_none.size(), 1u);
  EXPECT_EQ(in_none[0].begin_ns, 200 * kMs);
  EXPECT_EQ(in_none[0].end_ns, 250 * kMs);
  EXPECT_TRUE(summary.take_in_none().empty());
  summary.gap();
  summary.add(call(EventKind::call_begin, 9, 900 * kMs));
  EXPECT_TRUE(summary.take_in_none().empty()) << "it may have been in calls that were not seen";
}

TEST(Summary, OfSmallCallsThereIsTheEndAlone) {
  Summary summary({false, true});
  for (uint32_t seq = 1; seq <= 4; seq++)
    summary.add(call(EventKind::call_end, seq, seq * kMs, kMs / 2));
  const Digest digest = summary.take(kMs);
  EXPECT_EQ(digest.plans.at(0).alone, 4u);
  EXPECT_EQ(digest.paces.at(0), (DigestPace{1, 3, kMs / 2, kMs}));
}

}  // namespace
}  // namespace sennit::watch
