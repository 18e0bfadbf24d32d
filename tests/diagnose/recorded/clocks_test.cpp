// clocks_test.cpp: the clocks of hosts are made one by the better of what messages say and what the
// control plane measured.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include "diagnose/recorded/messages.hpp"

namespace sennit::diagnose {
namespace {

constexpr int64_t kUs = 1000, kS = 1'000'000'000;

class Clocks : public testing::Test {
 protected:
  // One rank a host; its clock is `ahead_ns` of the first one's.
  void add(int rank, const std::string& host, int64_t ahead_ns) {
    RankRecording& one = job_.ranks.emplace_back();
    one.rank = rank;
    one.size = job_.size = 4;
    one.host = host;
    one.monotonic_ns = static_cast<uint64_t>(kStart + ahead_ns);
    one.realtime_ns = kStart;
    ahead_.push_back(ahead_ns);
  }
  void measured(size_t at, int64_t ahead_ns, int64_t error_ns, int root = 0) {
    MeasuredClock& clock = job_.ranks[at].clock;
    clock = {ahead_ns, static_cast<uint64_t>(error_ns), static_cast<uint64_t>(kStart + ahead_[at]),
             root};
    clock.check = clock.expected_check();
  }
  // Takes so long from one to the other.
  void message(size_t from, size_t to, int64_t takes_ns) {
    TraceEvent sent, received;
    sent.kind = EventKind::send;
    received.kind = EventKind::recv;
    sent.seq = received.seq = ++messages_;
    sent.peer = job_.ranks[to].rank;
    received.peer = job_.ranks[from].rank;
    sent.posted_ns = static_cast<uint64_t>(kStart + ahead_[from]);
    received.posted_ns = static_cast<uint64_t>(kStart + ahead_[to] + takes_ns);
    job_.ranks[from].events.push_back(sent);
    job_.ranks[to].events.push_back(received);
  }
  ClockOffset of(const std::string& host) {
    job_.index();
    return clock_offsets(job_, join_messages(job_)).at(host);
  }
  static constexpr uint64_t kStart = 1'000'000 * kS;
  JobRecording job_;
  std::vector<int64_t> ahead_;
  uint32_t messages_ = 0;
};

TEST_F(Clocks, TheBetterOfBothCounts) {
  add(0, "a", 0);
  add(1, "b", 5 * kS);
  EXPECT_EQ(of("b").error_ns, ClockOffset::kUnknown);
  message(0, 1, 900 * kUs);
  message(1, 0, 100 * kUs);
  EXPECT_EQ(of("b").error_ns, 500u * kUs);
  EXPECT_EQ(of("b").ahead_ns, 5 * kS + 400 * kUs);
  measured(0, 0, 0);
  measured(1, 5 * kS + 10 * kUs, 60 * kUs);
  EXPECT_EQ(of("b").ahead_ns, 5 * kS + 10 * kUs);
  EXPECT_GE(of("b").error_ns, 60u * kUs);
  EXPECT_LE(of("b").error_ns, 61u * kUs);
  message(0, 1, 20 * kUs);
  message(1, 0, 10 * kUs);
  EXPECT_EQ(of("b").error_ns, 15u * kUs) << "messages can be better";
}

TEST_F(Clocks, WithoutMessagesBetweenThemAndWithoutTheFirstRank) {
  add(2, "c", 0);
  add(3, "d", -7 * kS);
  measured(0, 100 * kS, 30 * kUs);
  measured(1, 93 * kS + 5 * kUs, 40 * kUs);
  EXPECT_EQ(of("d").ahead_ns, -7 * kS + 5 * kUs);
  EXPECT_EQ(of("d").error_ns, 70u * kUs);
}

TEST_F(Clocks, OfAnotherRootOrHalfWrittenAreNotHeldAgainstTheOthers) {
  add(0, "a", 0);
  add(1, "b", 5 * kS);
  measured(0, 0, 0);
  measured(1, 77 * kS, 10, 1);
  EXPECT_EQ(of("b").error_ns, ClockOffset::kUnknown);
  measured(1, 77 * kS, 10);
  job_.ranks[1].clock.ahead_ns++;
  EXPECT_EQ(of("b").error_ns, ClockOffset::kUnknown);
  EXPECT_EQ(of("b").ahead_ns, 5 * kS) << "by real time";
}

TEST_F(Clocks, WhatWasMeasuredLongBeforeTheEventsIsWorthLess) {
  add(0, "a", 0);
  add(1, "b", 5 * kS);
  measured(0, 0, 0);
  measured(1, 5 * kS, 60 * kUs);
  TraceEvent later;
  later.kind = EventKind::call_begin;
  later.posted_ns = kStart + 105 * kS;
  job_.ranks[1].events.push_back(later);
  EXPECT_EQ(of("b").error_ns, 60u * kUs + clock_drift_ns(100 * kS));
}

}  // namespace
}  // namespace sennit::diagnose
