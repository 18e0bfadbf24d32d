// hang_test.cpp: who is behind, by what ranks say they do: every cause that can be told apart.
// ctest not-under-tsan: it has one thread
#include "diagnose/hang/hang.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sennit::diagnose {
namespace {

constexpr uint32_t kComm = 7, kOther = 8;
constexpr uint64_t kNow = 50'000'000'000, kBegan = 10'000'000'000;
constexpr Patience kPatience{1'000'000'000, 5'000'000'000};

// Four ranks of one communicator, each with its own part of what is said.
class HangTest : public testing::Test {
 protected:
  HangTest() {
    job_.size = 4;
    job_.communicators = {{kComm, {0, 1, 2, 3}}, {kOther, {0, 1, 2, 3}}};
    job_.numbers = {{kComm, kComm}, {kOther, kOther}};
    job_.index();
    for (int rank = 0; rank < job_.size; rank++) {
      Standing standing;
      standing.rank = rank;
      standing.host = "h" + std::to_string(rank);
      standing.now_ns = kNow;
      standings_.push_back(standing);
    }
  }
  StandingCall& call(int rank, uint32_t comm, uint32_t seq) {
    StandingCall standing;
    standing.call.rank = rank;
    standing.call.comm = comm;
    standing.call.seq = seq;
    standing.call.plan = 99;
    standing.call.begin_ns = standing.moved_ns = kBegan;
    standing.call.awaited = true;
    std::vector<StandingCall>& calls = standings_[static_cast<size_t>(rank)].calls;
    calls.push_back(standing);
    return calls.back();
  }
  void ended(int rank, uint32_t comm, uint32_t seq) {
    call(rank, comm, seq).call.end_ns = kBegan + 1;
  }
  std::optional<Hang> hang() {
    Plans plans(job_);
    return find_hang(job_, plans, standings_, kPatience);
  }

  JobRecording job_;
  std::vector<Standing> standings_;
};

TEST_F(HangTest, ARankThatHasNotCalled) {
  for (const int rank : {0, 1, 3}) call(rank, kComm, 4);
  ended(2, kComm, 3);
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::not_called);
  EXPECT_EQ(hang->behind, std::vector{2});
  EXPECT_EQ(hang->waiting, (std::vector{0, 1, 3}));
  EXPECT_EQ(hang->seq, 4u);
  EXPECT_NE(hang->sentence.find("rank 2 is behind: it has not called"), std::string::npos)
      << hang->sentence;
}

TEST_F(HangTest, ARankThatDoesNotAnswer) {
  for (const int rank : {0, 1, 3}) call(rank, kComm, 4);
  standings_[2].state = RankState::silent;
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::silent);
  EXPECT_EQ(hang->behind, std::vector{2});
  EXPECT_NE(hang->sentence.find("rank 2 does not answer: stopped, or its host hangs or is cut off, "
                                "or it has left the job; ranks 0-1,3 have waited"),
            std::string::npos)
      << hang->sentence;
}

TEST_F(HangTest, RanksInCallsOfDifferentCommunicators) {
  for (const int rank : {0, 1, 3}) call(rank, kComm, 4);
  call(2, kOther, 1);
  for (const int rank : {0, 1, 3}) ended(rank, kOther, 0);
  ended(2, kComm, 3);
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::waits_itself);
  EXPECT_EQ(hang->behind, (std::vector{0, 1, 2, 3}));
}

TEST_F(HangTest, AMessageThatLeftAndDidNotArrive) {
  for (int rank = 0; rank < 4; rank++) call(rank, kComm, 4);
  const OpenStep awaited{EventKind::recv, 1, 0, 5, 17, 1};
  standings_[3].calls.back().open = {awaited};
  standings_[1].calls.back().sent = {{0, 0, 16}, {3, 0, 17}};
  standings_[0].calls.back().open = {{EventKind::recv, 3, 0, 6, 18, 1}};  // after that of rank 3
  standings_[3].calls.back().sent = {{1, 0, 3}};
  standings_[2].calls.back().open = {{EventKind::recv, 0, 0, 7, 19, 1}};
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::lost_message) << hang->sentence;
  EXPECT_EQ(hang->behind, std::vector{1});
  EXPECT_EQ(hang->waiting, std::vector{3});
  ASSERT_TRUE(hang->where);
  EXPECT_EQ(hang->where->step, 5u);
  EXPECT_EQ(hang->where->peer, 1);
  ASSERT_FALSE(hang->evidence.empty());
  EXPECT_NE(hang->evidence.back().find("it hangs in step 5 of chunk 0: a message (tag 17) from "
                                       "rank 1"),
            std::string::npos)
      << hang->evidence.back();
}

TEST_F(HangTest, ARankThatHasWhatItNeedsAndDoesNotGoOn) {
  for (int rank = 0; rank < 4; rank++) call(rank, kComm, 4);
  standings_[0].calls.back().open = {{EventKind::recv, 2, 0, 1, 5, 1}};
  standings_[2].calls.back().open = {{EventKind::reduce, -1, 0, 9, 0, 0}};
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::stands_still) << hang->sentence;
  EXPECT_EQ(hang->behind, std::vector{2});
}

// What a rank with a lost link sends and what is sent to it is all that is missing.
TEST_F(HangTest, MessagesThatDidNotArriveAreToldByTheirEnds) {
  for (int rank = 0; rank < 4; rank++) call(rank, kComm, 4);
  const auto lost = [&](int from, int to) {
    standings_[static_cast<size_t>(to)].calls.back().open = {{EventKind::recv, from, 0, 1, 5, 1}};
    standings_[static_cast<size_t>(from)].calls.back().sent = {{to, 0, 5}};
  };
  lost(2, 3);
  lost(3, 0);
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::lost_message) << hang->sentence;
  EXPECT_EQ(
      hang->evidence.front(),
      "missing is what goes from rank 2 to rank 3, from rank 3 to rank 0: all of it has rank 3 "
      "at an end");
}

// Numbers of messages count between two ranks: that of one is no number of the others' calls.
TEST_F(HangTest, WhoWaitsForAMessageIsSaidToReceive) {
  for (const int rank : {0, 1, 3}) call(rank, kComm, 11);
  StandingCall& receive = call(2, kComm, 1);
  receive.call.point_to_point = receive.call.receiving = true;
  receive.call.plan = 0;
  receive.call.peer = 3;
  StandingCall& sent = call(2, kComm, 1);
  sent.call.point_to_point = true;
  sent.call.peer = 1;
  sent.call.end_ns = kBegan + 1;
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::waits_itself) << hang->sentence;
  EXPECT_EQ(hang->evidence[2],
            "rank 2 on h2, is in a receive from rank 3 (tag 0 of communicator 7) since 40.0 s");
}

TEST_F(HangTest, AReceiveThatNobodyWaitsForHoldsNobodyUp) {
  for (const int rank : {0, 1, 2}) call(rank, kComm, 4);
  ended(3, kComm, 3);
  StandingCall& early = call(3, kComm, 0);
  early.call.point_to_point = early.call.receiving = true;
  early.call.plan = 0;
  early.call.peer = 1;
  early.call.awaited = false;
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::not_called) << hang->sentence;
  EXPECT_EQ(hang->behind, std::vector{3});
}

TEST_F(HangTest, WhoWaitsInTheNextCallForOneThatMovesDoesNotHang) {
  for (const int rank : {0, 1, 2}) call(rank, kComm, 4).moved_ns = kNow - 1;
  ended(3, kComm, 4);
  call(3, kComm, 5);
  EXPECT_FALSE(hang());
}

// Rank 1 waits for rank 0, and that one for a call that moves, which was looked at before.
TEST_F(HangTest, WhoWaitsForOneThatWaitsForOneThatMovesDoesNotHang) {
  call(0, kComm, 4);
  for (const int rank : {2, 3}) call(rank, kComm, 4).moved_ns = kNow - 1;
  ended(1, kComm, 4);
  call(1, kOther, 1).moved_ns = kBegan + 1;
  for (const int rank : {2, 3}) ended(rank, kOther, 1);
  EXPECT_FALSE(hang());
}

TEST_F(HangTest, WhoseCallIsForgottenIsNotBlamedForAMessage) {
  for (const int rank : {0, 1, 2}) call(rank, kComm, 4);
  standings_[0].calls.back().open = {{EventKind::recv, 3, 0, 1, 5, 1}};
  standings_[3].forgets = true;
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->cause, HangCause::unknown) << hang->sentence;
}

TEST_F(HangTest, OneThatCannotBeExplainedHidesNoOther) {
  StandingCall& service = call(0, kOther, 0);  // of a thread that serves whoever comes
  service.call.point_to_point = service.call.receiving = true;
  service.call.plan = 0;
  service.moved_ns = 1;
  for (const int rank : {0, 1, 3}) call(rank, kComm, 4);
  ended(2, kComm, 3);
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->behind, std::vector{2}) << hang->sentence;
}

TEST_F(HangTest, NumbersOfCallsMayWrap) {
  for (const int rank : {0, 1, 3}) call(rank, kComm, 0);
  ended(2, kComm, UINT32_MAX);
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->behind, std::vector{2}) << hang->sentence;
}

TEST_F(HangTest, OfManyOnlyAFewAreToldOf) {
  job_.size = 100;
  std::vector<int> all;
  standings_.clear();
  for (int rank = 0; rank < job_.size; rank++) {
    all.push_back(rank);
    Standing standing;
    standing.rank = rank;
    standing.now_ns = kNow;
    standings_.push_back(standing);
  }
  job_.communicators[kComm] = all;
  job_.index();
  call(7, kComm, 0);
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->behind.size(), 99u);
  EXPECT_LE(hang->evidence.size(), 5u);
}

TEST_F(HangTest, WhatHasNotStoodForLongIsNoHang) {
  for (const int rank : {0, 1, 3}) call(rank, kComm, 4).moved_ns = kNow - kPatience.call_ns + 1;
  ended(2, kComm, 3);
  EXPECT_FALSE(hang());
}

TEST_F(HangTest, AReceiveMayWaitForLonger) {
  StandingCall& receive = call(0, kComm, 0);
  receive.call.point_to_point = receive.call.receiving = true;
  receive.call.plan = 0;
  receive.call.peer = 1;
  receive.moved_ns = kNow - kPatience.message_ns + 1;
  EXPECT_FALSE(hang());
  receive.moved_ns = kNow - kPatience.message_ns;
  const std::optional<Hang> hang = this->hang();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->behind, std::vector{1});
}

}  // namespace
}  // namespace sennit::diagnose
