// call_judge_test.cpp: what is concluded from reports and answers: who differs, who is late, and
// when nobody is to blame.
//
// ctest not-under-tsan: it has one thread
#include "control/rank/call_judge.hpp"

#include <gtest/gtest.h>

#include <fmt/core.h>

namespace sennit::control {
namespace {

constexpr int64_t kArrivalMs = 1000;
constexpr int64_t kStallMs = 500;

CallDescriptor call(uint32_t comm, uint32_t seq, uint64_t signature, const std::string& what) {
  CallDescriptor result;
  result.comm = comm;
  result.seq = seq;
  result.signature = signature;
  result.text = fmt::format("{}, in call {} of communicator {}", what, seq, comm);
  return result;
}

struct Judging : ::testing::Test {
  CallJudge judge{0, kStallMs};
  std::set<int> dead, left;
  StallReport report(int reporter, int64_t waited = 0, int64_t stalled = 0) {
    StallReport r;
    r.call = call(1, 17, 100, "all_reduce count 1000 float32 sum");
    r.reporter = reporter;
    r.members = {0, 1, 2, 3, 4, 5, 6, 7};
    r.waited_ms = waited;
    r.stalled_ms = stalled;
    return r;
  }
  void answer(uint64_t inquiry, int rank, InquiryAnswer::Where where, uint64_t signature = 100,
              const std::string& text = "", bool in_stream = false) {
    InquiryAnswer a;
    a.rank = rank;
    a.where = where;
    a.seq = where == InquiryAnswer::Where::before ? 16 : 17;
    a.signature = signature;
    a.text = text;
    a.in_stream = in_stream;
    judge.answer({inquiry, {}, {a}});
  }
  CallJudge::Outcome at(int64_t now) { return judge.judge(now, dead, left, kArrivalMs); }
};

TEST_F(Judging, NamesBothSidesOfAMismatch) {
  const auto inquiry = judge.report(report(2), 0);
  ASSERT_TRUE(inquiry);
  for (int r = 0; r < 8; r++)
    if (r != 3) answer(inquiry->id, r, InquiryAnswer::Where::at);
  EXPECT_TRUE(at(10).verdicts.empty());  // rank 3 has not answered
  answer(inquiry->id, 3, InquiryAnswer::Where::at, 200,
         "all_reduce count 1024 float32 sum, in call 17 of communicator 1");
  const auto outcome = at(20);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_EQ(outcome.verdicts[0].status.kind(), SENNIT_MISMATCH);
  EXPECT_EQ(outcome.verdicts[0].status.text(),
            "call 17 on communicator 1: rank 3 called all_reduce count 1024 float32 sum; ranks "
            "0-2,4-7 called "
            "all_reduce count 1000 float32 sum");
  EXPECT_TRUE(at(1000).verdicts.empty());
}

TEST_F(Judging, LateRanksAreWaitedForThenNamed) {
  auto inquiry = judge.report(report(0), 0);
  for (const int64_t now : {0, 500}) {
    if (now > 0) inquiry = judge.report(report(1, now), now);
    ASSERT_TRUE(inquiry);
    for (int r = 0; r < 8; r++)
      answer(inquiry->id, r, r == 5 ? InquiryAnswer::Where::before : InquiryAnswer::Where::at);
    const auto outcome = at(now);
    EXPECT_TRUE(outcome.verdicts.empty());
    ASSERT_EQ(outcome.waiting.size(), now == 0 ? 1u : 0u);  // said once
    for (const std::string& text : outcome.waiting)
      EXPECT_EQ(text.find("waiting for rank 5 in call 17"), 0u);
  }
  inquiry = judge.report(report(1, 1000), 1000);
  for (int r = 0; r < 8; r++)
    answer(inquiry->id, r, r == 5 ? InquiryAnswer::Where::before : InquiryAnswer::Where::at);
  const auto outcome = at(1000);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_EQ(outcome.verdicts[0].status.kind(), SENNIT_TIMED_OUT);
  EXPECT_EQ(outcome.verdicts[0].status.text(),
            "rank 5 did not arrive in call 17 on communicator 1 (all_reduce count 1000 float32 "
            "sum) within "
            "1000 ms; its "
            "last call there is 16");
}

TEST_F(Judging, NamesWhoWasRefusedTheCallAndWhy) {
  const auto round = [&](StallReport first) {
    judge = CallJudge(0, kStallMs);
    const auto inquiry = judge.report(first, 0);
    EXPECT_TRUE(inquiry);
    for (const int r : first.members)
      if (inquiry)
        answer(inquiry->id, r, r == 5 ? InquiryAnswer::Where::before : InquiryAnswer::Where::at,
               100, r == 5 ? "the count is off" : "");
    const auto outcome = at(10);
    return outcome.verdicts.empty() ? Status() : outcome.verdicts[0].status;
  };
  EXPECT_TRUE(round(report(0, 0, kRefusalStandsMs - 1)).ok()) << "nobody has missed it for long";
  const StallReport missed = report(0, 0, kRefusalStandsMs);
  const Status told = round(missed);
  EXPECT_EQ(told.kind(), SENNIT_MISMATCH);
  EXPECT_EQ(told.text(),
            "call 17 on communicator 1: rank 5 was refused it, the count is off; ranks 0-4,6-7 "
            "called all_reduce count 1000 float32 sum");
  StallReport refused_as_well = missed;
  refused_as_well.call.refused_before = true;
  EXPECT_TRUE(round(refused_as_well).ok()) << "rank 5 may only be late to what all do instead";
}

// Groups of other members may be made one after the other with the same tag.
TEST_F(Judging, OfTheNextGroupItAsksTheMembersOfThat) {
  StallReport making = report(0, 0, kRefusalStandsMs);
  making.makes_group = true;
  making.members = {0, 1};
  ASSERT_TRUE(judge.report(making, 0));
  EXPECT_TRUE(at(CallJudge::kRoundMs).verdicts.empty());
  making.members = {0, 5};
  making.call.signature++;
  const auto inquiry = judge.report(making, CallJudge::kRoundMs + 1);
  ASSERT_TRUE(inquiry);
  answer(inquiry->id, 0, InquiryAnswer::Where::absent);
  answer(inquiry->id, 5, InquiryAnswer::Where::absent, 0, "no list");
  EXPECT_EQ(at(2 * CallJudge::kRoundMs).verdicts.size(), 1u);
}

// Whoever makes a group has no call there, and nobody is late to it.
TEST_F(Judging, OfAGroupThatIsMadeOnlyARefusalTells) {
  for (const bool refused : {false, true}) {
    judge = CallJudge(0, kStallMs);
    StallReport making = report(0, 10 * kArrivalMs, 10 * kArrivalMs);
    making.call.text = "create_group of ranks 0,5 of communicator 1, tag 0";
    making.makes_group = true;
    making.members = {0, 5};
    const auto inquiry = judge.report(making, 0);
    ASSERT_TRUE(inquiry);
    for (const int r : {0, 5})
      answer(inquiry->id, r, InquiryAnswer::Where::absent, 0, refused && r == 5 ? "no list" : "");
    const auto outcome = at(10);
    EXPECT_TRUE(outcome.waiting.empty());
    ASSERT_EQ(outcome.verdicts.size(), refused ? 1u : 0u);
    if (refused) {
      EXPECT_EQ(outcome.verdicts[0].status.text(),
                "create_group of ranks 0,5 of communicator 1, tag 0: rank 5 was refused it, no "
                "list");
    }
  }
}

// A stream that has not come to the call may take as long as it likes, and so long have the others
// waited; from then on they have the usual time.
TEST_F(Judging, AStreamThatComesLateIsSaidAndIsNoError) {
  const auto round = [&](int64_t now, bool in_stream) {
    const auto inquiry = judge.report(report(1, now, now), now);
    EXPECT_TRUE(inquiry) << now;
    for (int r = 0; r < 8 && inquiry; r++)
      answer(inquiry->id, r, InquiryAnswer::Where::at, 100, "", in_stream && r == 5);
    return at(now);
  };
  const auto first = round(0, true);
  ASSERT_EQ(first.waiting.size(), 1u);
  EXPECT_EQ(first.waiting[0],
            "waiting for rank 5 in call 17 on communicator 1 (all_reduce count 1000 float32 sum): "
            "the call is in a stream that has not come to it");
  const int64_t came = 10 * kArrivalMs;
  for (int64_t now = 500; now < came; now += 500) {
    const auto outcome = round(now, true);
    EXPECT_TRUE(outcome.verdicts.empty()) << now;
    EXPECT_TRUE(outcome.waiting.empty()) << now;
  }
  EXPECT_TRUE(round(came, false).verdicts.empty());
  const auto outcome = round(came + 2 * kArrivalMs, false);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_EQ(outcome.verdicts[0].status.kind(), SENNIT_TIMED_OUT);
}

TEST_F(Judging, AStreamThatComesLateIsNoErrorWhereTheAnswersDoToo) {
  for (int64_t now = 0; now <= 3 * kArrivalMs; now += 500) {
    const auto inquiry = judge.report(report(1, now, now), now);
    ASSERT_TRUE(inquiry) << now;
    for (int r = 0; r < 8; r++)
      if (r != 5) answer(inquiry->id, r, InquiryAnswer::Where::at);
    EXPECT_TRUE(at(now + CallJudge::kRoundMs).verdicts.empty()) << now;
    answer(inquiry->id, 5, InquiryAnswer::Where::at, 100, "", true);
  }
}

// Also where a round has just been, and whatever the arrival time-out says.
TEST_F(Judging, WhoseOwnTimeIsOverIsToldAtOnceWhoIsLate) {
  auto inquiry = judge.report(report(0), 0);
  for (int r = 0; r < 8; r++) answer(inquiry->id, r, InquiryAnswer::Where::before);
  EXPECT_TRUE(at(0).verdicts.empty());
  StallReport over = report(4, 70, 70);
  over.expired_ms = 70;
  inquiry = judge.report(over, 10);
  ASSERT_TRUE(inquiry);
  for (int r = 0; r < 8; r++)
    answer(inquiry->id, r, r < 2 ? InquiryAnswer::Where::before : InquiryAnswer::Where::at);
  const auto outcome = at(20);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_EQ(outcome.verdicts[0].status.kind(), SENNIT_TIMED_OUT);
  EXPECT_EQ(outcome.verdicts[0].status.text(),
            "ranks 0-1 did not arrive in call 17 on communicator 1 (all_reduce count 1000 float32 "
            "sum) within 70 ms");
}

TEST_F(Judging, WhoseOwnTimeIsOverWhileAllAreInItIsTimedOutToo) {
  for (const bool gone : {false, true}) {
    judge = CallJudge(0, kStallMs);
    if (gone) left = {6};
    StallReport over = report(4, 70, 70);
    over.expired_ms = 70;
    const auto inquiry = judge.report(over, 0);
    for (int r = 0; r < 8; r++)
      if (!gone || r != 6) answer(inquiry->id, r, InquiryAnswer::Where::at);
    const auto outcome = at(CallJudge::kRoundMs);
    ASSERT_EQ(outcome.verdicts.size(), 1u);
    EXPECT_EQ(outcome.verdicts[0].status.kind(), SENNIT_TIMED_OUT);
    EXPECT_EQ(outcome.verdicts[0].status.text(),
              std::string("call 17 on communicator 1 (all_reduce count 1000 float32 sum) did not "
                          "complete within 70 ms on rank 4, ") +
                  (gone ? "but rank 6 has left the job" : "though all ranks are in it"));
  }
}

TEST_F(Judging, AnAnswerThatNeverComesCountsAsLate) {
  auto inquiry = judge.report(report(0, kArrivalMs), 0);
  for (int r = 0; r < 7; r++) answer(inquiry->id, r, InquiryAnswer::Where::at);
  EXPECT_TRUE(at(CallJudge::kRoundMs - 1).verdicts.empty());
  const auto outcome = at(CallJudge::kRoundMs);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_NE(outcome.verdicts[0].status.text().find("rank 7 did not arrive"), std::string::npos);
}

// A busy rank's answer may miss a round, or every round: it has come all the same.
TEST_F(Judging, WhoHasComeIsNotLateWhereAnAnswerIs) {
  for (const bool answers_once : {true, false}) {
    SCOPED_TRACE(answers_once ? "once in time" : "always too late");
    judge = CallJudge(0, kStallMs);
    bool first = true;
    for (int64_t now = 0; now <= 2 * kArrivalMs; now += kStallMs) {
      const auto inquiry = judge.report(report(0, now, kStallMs), now);
      ASSERT_TRUE(inquiry);
      const bool in_time = answers_once && first;
      for (int r = 0; r < 8; r++)
        if (r != 7 || in_time) answer(inquiry->id, r, InquiryAnswer::Where::at);
      EXPECT_TRUE(at(now + CallJudge::kRoundMs).verdicts.empty()) << now;
      if (!answers_once) answer(inquiry->id, 7, InquiryAnswer::Where::at);
      first = false;
    }
  }
}

TEST_F(Judging, ASlowNetworkIsNoError) {
  auto inquiry = judge.report(report(0, 5000, 600), 0);  // waits long, but things do move
  for (int r = 0; r < 8; r++)
    answer(inquiry->id, r, r == 2 ? InquiryAnswer::Where::past : InquiryAnswer::Where::at);
  EXPECT_TRUE(at(1).verdicts.empty());
  inquiry = judge.report(report(0, 6000, kArrivalMs), 1000);
  for (int r = 0; r < 8; r++) answer(inquiry->id, r, InquiryAnswer::Where::at);
  const auto outcome = at(1001);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_EQ(outcome.verdicts[0].status.kind(), SENNIT_TIMED_OUT);
  EXPECT_NE(outcome.verdicts[0].status.text().find("no progress"), std::string::npos);
}

// How long it was before the last one came says nothing of what it has been since.
TEST_F(Judging, AStallThatIsOverCountsNoMore) {
  constexpr int64_t kLongMs = 15'000, kLongArrivalMs = 100'000;
  static_assert(kLongMs > CallJudge::kLeftMs);
  auto inquiry = judge.report(report(0, kLongMs, kLongMs), 0);
  for (int r = 0; r < 8; r++)
    answer(inquiry->id, r, r == 1 ? InquiryAnswer::Where::before : InquiryAnswer::Where::at);
  EXPECT_TRUE(judge.judge(0, dead, left, kLongArrivalMs).verdicts.empty());
  left = {1};
  inquiry = judge.report(report(0, kLongMs + 600, 600), 600);
  ASSERT_TRUE(inquiry);
  for (int r = 0; r < 8; r++)
    if (r != 1) answer(inquiry->id, r, InquiryAnswer::Where::at);
  const int64_t end = 600 + CallJudge::kRoundMs;
  EXPECT_TRUE(judge.judge(end, dead, left, kLongArrivalMs).verdicts.empty());
}

TEST_F(Judging, CallsAreRememberedHoweverSeldomTheyAreReported) {
  constexpr int64_t kSeldomMs = 15'000, kLongArrivalMs = 100'000;
  judge = CallJudge(0, kSeldomMs);
  for (int64_t now = 0; now < 3 * kSeldomMs; now += kSeldomMs) {
    const auto inquiry = judge.report(report(0, now), now);
    ASSERT_TRUE(inquiry);
    for (int r = 0; r < 7; r++) answer(inquiry->id, r, InquiryAnswer::Where::at);
    const int64_t end = now + CallJudge::kRoundMs;
    const auto outcome = judge.judge(end, dead, left, kLongArrivalMs);
    EXPECT_EQ(outcome.waiting.size(), now == 0 ? 1u : 0u) << "said once";
    judge.judge(now + kSeldomMs - 1, dead, left, kLongArrivalMs);
  }
}

TEST_F(Judging, AReportedMismatchThatNobodyCanShowIsStillOne) {
  StallReport odd = report(2);
  odd.mismatching_peer = 6;
  int64_t now = 0;
  std::vector<Inquiry> inquiries;
  if (const auto first = judge.report(odd, now)) inquiries.push_back(*first);
  std::vector<CallVerdict> verdicts;
  for (int round = 0; round < 5 && verdicts.empty(); round++, now += CallJudge::kRoundGapMs) {
    for (const Inquiry& inquiry : inquiries)
      for (int r = 0; r < 8; r++)
        answer(inquiry.id, r, r == 6 ? InquiryAnswer::Where::past : InquiryAnswer::Where::at);
    auto outcome = at(now);
    verdicts = outcome.verdicts;
    inquiries = outcome.inquiries;
  }
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].status.kind(), SENNIT_MISMATCH);
  EXPECT_NE(verdicts[0].status.text().find("rank 6"), std::string::npos);
}

TEST_F(Judging, TheDeadAreNotItsBusinessAndLeaversAre) {
  dead = {5};
  auto inquiry = judge.report(report(0, 5000, 5000), 0);
  for (int r = 0; r < 8; r++)
    if (r != 5) answer(inquiry->id, r, InquiryAnswer::Where::at);
  EXPECT_TRUE(at(CallJudge::kRoundMs).verdicts.empty());
  dead.clear();
  left = {5};
  inquiry = judge.report(report(0, 5000, 5000), 1000);
  for (int r = 0; r < 8; r++)
    if (r != 5) answer(inquiry->id, r, InquiryAnswer::Where::at);
  const auto outcome = at(1000 + CallJudge::kRoundMs);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_EQ(outcome.verdicts[0].status.kind(), SENNIT_PEER_FAILED);
  EXPECT_NE(outcome.verdicts[0].status.text().find("rank 5 has left the job"), std::string::npos);
}

}  // namespace
}  // namespace sennit::control
