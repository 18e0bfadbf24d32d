// hang_watch_test.cpp: when the coordinator asks, what it makes of the answers, and when it tells.
// ctest not-under-tsan: it has one thread
#include "watch/hang_watch.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "diagnose/communicator_numbers.hpp"
#include "topology/source.hpp"

namespace sennit::watch {
namespace {

constexpr uint64_t kMs = 1'000'000, kStall = 500 * kMs;
constexpr uint32_t kComm = 3;

class HangWatchTest : public testing::Test {
 protected:
  HangWatchTest()
      : fabric_(*synthetic_fabric("racks=2x2;nic=400Mbit/s")),
        hangs_(0, fabric_.to_text(), ranks_on_all_hosts(fabric_, 1), kStall) {}

  // All of them are in call `seq` of their group of a split, but for rank `late`. Groups of two
  // have one number.
  Answer answer_of(uint64_t question, int rank, int late, uint32_t seq) const {
    Answer answer;
    answer.question = question;
    answer.standing.rank = rank;
    answer.standing.host = "a host";
    answer.standing.now_ns = now_ns_;
    diagnose::StandingCall call;
    call.call.rank = rank;
    call.call.comm = kComm;
    call.call.seq = rank == late ? seq - 1 : seq;
    call.call.begin_ns = call.moved_ns = began_ns_;
    call.call.awaited = true;
    call.call.stalled_ns = now_ns_;
    const bool inside = rank / 2 == late / 2 && rank != late;
    if (!inside) call.call.end_ns = began_ns_ + 1;
    const std::vector<int> members = {rank / 2 * 2, rank / 2 * 2 + 1};
    answer.standing.calls = {call};
    answer.notes = {CommunicatorNote{kComm, members}};
    return answer;
  }
  // As it comes over the wire.
  void give(const Answer& answer) {
    Result<Answer> read = decode_answer(encode(answer), 4);
    ASSERT_TRUE(read) << read.status().text();
    hangs_.answer(*std::move(read));
  }
  // One question, answered by all but `silent`; what is told of it.
  std::vector<LiveVerdict> round(int late, uint32_t seq, int silent = -1) {
    hangs_.stalls(now_ns_);
    const std::optional<uint64_t> question = hangs_.question(now_ns_);
    EXPECT_TRUE(question);
    if (!question) return {};
    for (int rank = 0; rank < 4; rank++)
      if (rank != silent) {
        Answer answer = answer_of(*question, rank, late, seq);
        if (change_) change_(&answer);
        give(answer);
      }
    if (silent >= 0) {
      EXPECT_TRUE(hangs_.look(now_ns_).empty());
      now_ns_ += HangWatch::kAnswerNs;
    }
    std::vector<LiveVerdict> told = hangs_.look(now_ns_);
    EXPECT_FALSE(hangs_.question(now_ns_)) << "it asks without a pause";
    now_ns_ = std::max(now_ns_ + 1, hangs_.due_ns());
    return told;
  }

  const Fabric fabric_;
  HangWatch hangs_;
  void (*change_)(Answer*) = nullptr;  // what is different from answer_of()
  uint64_t began_ns_ = 1'000'000 * kMs, now_ns_ = began_ns_ + 700 * kMs;
};

TEST_F(HangWatchTest, AsksNobodyWhereNothingStalls) {
  EXPECT_FALSE(hangs_.question(now_ns_));
  EXPECT_EQ(hangs_.due_ns(), UINT64_MAX);
  EXPECT_TRUE(hangs_.look(now_ns_).empty());
}

TEST_F(HangWatchTest, TellsOnceWhatItFoundTwiceAndTakesItBack) {
  EXPECT_TRUE(round(3, 9).empty());
  const uint64_t first_ns = now_ns_;
  const std::vector<LiveVerdict> told = round(3, 9);
  EXPECT_LE(now_ns_ - first_ns, 2000 * kMs);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].about, VerdictAbout::hang);
  EXPECT_FALSE(told[0].withdrawn);
  EXPECT_EQ(told[0].comm, kComm);
  EXPECT_EQ(told[0].ranks, std::vector{3});
  ASSERT_TRUE(told[0].hang);
  EXPECT_EQ(told[0].hang->cause, "not_called");
  EXPECT_EQ(told[0].hang->seq, 9u);
  EXPECT_EQ(told[0].hang->waiting, std::vector{2});
  EXPECT_NE(told[0].sentence.find("communicator 3 of ranks 2-3"), std::string::npos)
      << told[0].sentence;
  for (int i = 0; i < 5; i++) EXPECT_TRUE(round(3, 9).empty());
  now_ns_ += 60'000 * kMs;
  const std::vector<LiveVerdict> over = hangs_.look(now_ns_);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_TRUE(over[0].withdrawn);
  EXPECT_EQ(over[0].ranks, std::vector{3});
  EXPECT_EQ(hangs_.due_ns(), UINT64_MAX);
  EXPECT_FALSE(hangs_.question(now_ns_));
}

// Members that make a communicator out of theirs tell each other so beside its calls.
TEST_F(HangWatchTest, OfAChannelTheMembersOfItsGroupAreTold) {
  change_ = [](Answer* answer) {
    diagnose::CallRecord& call = answer->standing.calls[0].call;
    if (call.rank != 2) return;
    call.comm |= diagnose::kChannel;
    call.point_to_point = call.receiving = true;
    call.peer = 3;
  };
  now_ns_ += 60'000 * kMs;  // of a message it takes longer until it is a hang
  round(3, 9);
  const std::vector<LiveVerdict> told = round(3, 9);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].ranks, std::vector{3});
  EXPECT_EQ(told[0].comm, kComm);
  EXPECT_EQ(told[0].members, (std::vector{2, 3}));
}

TEST_F(HangWatchTest, CallsThatGoOnAreNoHang) {
  for (uint32_t seq = 9; seq < 15; seq++) EXPECT_TRUE(round(3, seq).empty());
}

TEST_F(HangWatchTest, WhoIsBehindAgainAndAgainIsToldNowAndThen) {
  size_t told = 0;
  for (uint32_t seq = 1; seq < 20; seq++) {
    round(2, seq);
    for (const LiveVerdict& verdict : round(2, seq)) told += !verdict.withdrawn;
  }
  EXPECT_EQ(told, 1u);
  now_ns_ += HangWatch::kAgainNs;
  round(2, 20);
  EXPECT_EQ(round(2, 20).size(), 1u);
}

TEST_F(HangWatchTest, WhoDoesNotAnswerIsSaidToBeSilent) {
  round(1, 4, 1);
  const std::vector<LiveVerdict> told = round(1, 4, 1);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].hang->cause, "silent");
  EXPECT_EQ(told[0].ranks, std::vector{1});
}

TEST_F(HangWatchTest, AnswersToAnEarlierQuestionDoNotCount) {
  hangs_.stalls(now_ns_);
  const std::optional<uint64_t> question = hangs_.question(now_ns_);
  ASSERT_TRUE(question);
  for (int rank = 0; rank < 4; rank++) give(answer_of(*question - 1, rank, 3, 9));
  EXPECT_TRUE(hangs_.look(now_ns_).empty());
  EXPECT_EQ(hangs_.due_ns(), now_ns_ + HangWatch::kAnswerNs);
}

TEST(Answers, WhatIsNoneIsRefused) {
  Answer answer;
  answer.standing.rank = 3;
  answer.standing.calls.resize(2);
  answer.standing.calls[1].open.resize(3);
  answer.standing.calls[1].sent = {{1, 2, 3}};
  const std::vector<std::byte> bytes = encode(answer);
  ASSERT_TRUE(decode_answer(bytes, 4));
  EXPECT_FALSE(decode_answer(bytes, 3)) << "of a rank that there is not";
  for (size_t length = 0; length < bytes.size(); length++)
    EXPECT_FALSE(decode_answer({bytes.data(), length}, 4)) << length;
}

TEST(Hangs, AreToldToAllRanksAsTheyAre) {
  LiveVerdict verdict;
  verdict.about = VerdictAbout::hang;
  verdict.confidence = 1;
  verdict.ranks = {1, 5};
  verdict.sentence = "rank 1 is behind";
  verdict.hang = LiveHang{"not_called", "barrier", 5, {0, 2}, diagnose::OpenStep{}, "rack"};
  const std::vector<std::byte> bytes = encode_hang(verdict);
  const Result<LiveVerdict> read = decode_hang(bytes, 6);
  ASSERT_TRUE(read);
  EXPECT_EQ(json_of(*read), json_of(verdict));
  for (size_t length = 0; length < bytes.size(); length++)
    EXPECT_FALSE(decode_hang({bytes.data(), length}, 6)) << length;
  EXPECT_FALSE(decode_hang(bytes, 5)) << "of a rank that there is not";
}

}  // namespace
}  // namespace sennit::watch
