// connections_test.cpp: what is said of a link by what the kernel counted on the connections that
// cross it.
//
// ctest not-under-tsan: it has one thread
#include "diagnose/recorded/connections.hpp"

#include <gtest/gtest.h>

namespace sennit::diagnose {
namespace {

// Four hosts of one rank; what each has counted to each other one, by sender and peer.
class Kernel : public testing::Test {
 protected:
  Kernel() {
    job_.size = 4;
    for (int rank = 0; rank < 4; rank++) {
      RankRecording& recording = job_.ranks.emplace_back();
      recording.rank = rank;
      recording.size = 4;
      recording.host = "h" + std::to_string(rank + 1);
    }
    job_.index();
  }
  // 1,000 segments in a second on each, after as many without loss.
  void use_all() {
    for (int from = 0; from < 4; from++)
      for (int to = 0; to < 4; to++)
        if (to != from) record(from, to);
  }
  ConnectionRecord& record(int from, int to) {
    ConnectionRecord one;
    one.latest = {to, 310, 4200, 0, 24'750'000, {2, 2'000'000, 0, 0, 2000, 0, 2'000'000, 0}};
    one.before = {1, 1'000'000, 0, 0, 1000, 0, 1'000'000, 0};
    return table(from).records.emplace_back(one);
  }
  ConnectionsNote& table(int rank) {
    std::vector<Note>& notes = job_.ranks[static_cast<size_t>(rank)].notes;
    if (notes.empty()) notes.emplace_back(ConnectionsNote());
    return std::get<ConnectionsNote>(notes[0]);
  }
  ConnectionStatistics& of(int from, int to) {
    for (ConnectionRecord& one : table(from).records)
      if (one.latest.peer == to) return one.latest;
    return record(from, to).latest;
  }
  // Of what leaves the rack of the first two.
  KernelView view() const {
    return kernel_view(
        job_, connections_of(job_),
        [](const Connection& one) { return one.from < 2 && one.to >= 2; }, "out of rack0");
  }
  JobRecording job_;
};

using Lines = std::vector<std::string>;

TEST_F(Kernel, ACleanLinkIsRuledOutToLose) {
  use_all();
  EXPECT_EQ(view().ruled_out,
            Lines{"loss: no segments were sent again on 4 connections out of rack0, of 4000"});
  EXPECT_EQ(view().evidence,
            Lines{"the kernel: while there was something to send 8Mbit/s; delivery rate 198Mbit/s; "
                  "least round trip 0.31 ms, up to 4.2 ms under load"});
}

TEST_F(Kernel, LossIsToldBesideThatOfTheOthers) {
  use_all();
  of(0, 2).counters.segments_again = 60;
  of(1, 2).counters.segments_again = 64;
  of(3, 0).counters.segments_again = 1;
  EXPECT_EQ(view().evidence[0],
            "the kernel: 3.1% of segments sent again on 2 of 4 connections out of rack0 (loss); "
            "0.013% on the 8 others");
  EXPECT_TRUE(view().ruled_out.empty());
}

TEST_F(Kernel, MoreLossElsewhereIsTold) {
  use_all();
  of(0, 2).counters.segments_again = 3;
  of(3, 1).counters.segments_again = 100;
  of(3, 0).counters.segments_again = 60;
  EXPECT_EQ(view().ruled_out, Lines{"loss: no more than 0.075% of segments were sent again on 4 "
                                    "connections out of rack0, 2% on the others"});
  EXPECT_EQ(view().evidence[0],
            "the kernel: 2% of segments sent again on 2 of 8 connections elsewhere; 1% and more on "
            "2, most on h4 -> h2: 10%");
}

TEST_F(Kernel, AFewSegmentsAreNoEvidence) {
  use_all();
  of(0, 2).counters.segments_again = 1;
  of(3, 0).counters.segments_again = 1;
  EXPECT_EQ(view().ruled_out, Lines{"loss: no more than 0.025% of segments were sent again on 4 "
                                    "connections out of rack0, 0.013% on the others"});
  EXPECT_EQ(view().evidence.size(), 1u) << view().evidence[0];
}

TEST_F(Kernel, WhatFullQueuesLoseEverywhereIsNoLossOfTheLink) {
  use_all();
  of(0, 2).counters.segments_again = 60;
  for (int from = 2; from < 4; from++)
    for (int to = 0; to < 2; to++) of(from, to).counters.segments_again = 20;
  EXPECT_EQ(view().evidence[0],
            "the kernel: 1.5% of segments sent again on 1 of 4 connections out of rack0; 1% on the "
            "8 others");
}

TEST_F(Kernel, WhatWasLostLongAgoDoesNotCount) {
  use_all();
  for (ConnectionRecord& one : table(0).records)
    one.before.segments_again = one.latest.counters.segments_again = 500;
  EXPECT_EQ(view().ruled_out.size(), 1u);
}

TEST_F(Kernel, AnEndThatLimitsIsNamed) {
  use_all();
  of(0, 3).counters.receiver_limited_us = 620'000;
  of(1, 3).counters.receiver_limited_us = 300'000;
  of(0, 2).counters.receiver_limited_us = 100'000;
  of(1, 2).counters.buffer_limited_us = 500'000;
  const Lines evidence = view().evidence;
  ASSERT_EQ(evidence.size(), 3u);
  EXPECT_EQ(evidence[0],
            "the kernel: limited by the receiver's window for 62% of the time on h1 -> h4 and 1 "
            "more (the receiver is slow, not the way)");
  EXPECT_EQ(evidence[1],
            "the kernel: limited by the sender's own buffer for 50% of the time on h2 -> h3 "
            "(SENNIT_TCP_BUFFER_BYTES, net.ipv4.tcp_wmem)");
}

TEST_F(Kernel, ARateThatTheApplicationLimitsIsNone) {
  use_all();
  of(0, 2).delivered_bytes_per_s = 1'500'000;
  EXPECT_NE(view().evidence[0].find("delivery rate 12Mbit/s to 198Mbit/s a connection"),
            std::string::npos)
      << view().evidence[0];
  of(0, 2).application_limited = 1;
  EXPECT_NE(view().evidence[0].find("delivery rate 198Mbit/s;"), std::string::npos)
      << view().evidence[0];
}

TEST_F(Kernel, WhatWasNotUsedOrIsNotRecordedSaysNothing) {
  EXPECT_TRUE(view().evidence.empty());
  EXPECT_TRUE(view().ruled_out.empty());
  record(2, 0);
  record(0, 99);
  EXPECT_TRUE(view().evidence.empty());
  EXPECT_TRUE(view().ruled_out.empty());
}

TEST_F(Kernel, MuchLossIsToldAlsoWhereNoLinkIsToBlame) {
  use_all();
  EXPECT_EQ(kernel_view_of_all(job_, connections_of(job_)).ruled_out,
            Lines{"loss: no segments were sent again on 12 connections between hosts, of 12000"});
  of(3, 1).counters.segments_again = 9;
  EXPECT_TRUE(kernel_view_of_all(job_, connections_of(job_)).evidence.empty());
  EXPECT_EQ(kernel_view_of_all(job_, connections_of(job_)).ruled_out,
            Lines{"loss: no more than 0.075% of segments were sent again on 12 connections between "
                  "hosts"});
  of(3, 1).counters.segments_again = 200;
  EXPECT_EQ(kernel_view_of_all(job_, connections_of(job_)).evidence,
            Lines{"the kernel: 1.7% of segments sent again on 1 of 12 connections between hosts; "
                  "1% and more on 1, most on h4 -> h2: 20%"});
}

}  // namespace
}  // namespace sennit::diagnose
