// control_calls_test.cpp: calls that stall, differ or are aborted: what the judge concludes, and
// that all ranks are told the same.
#include <gtest/gtest.h>

#include "control/rank/call_judge.hpp"
#include "tests/control/fixture.hpp"

namespace sennit {
namespace {

using control::CallJudge;
using control::InquiryAnswer;
using control::StallReport;
using test::LocalJob;

constexpr int64_t kArrivalMs = 1000;

CallDescriptor call(uint32_t comm, uint32_t seq, uint64_t signature, const std::string& what) {
  CallDescriptor result;
  result.comm = comm;
  result.seq = seq;
  result.signature = signature;
  result.text = fmt::format("{}, in call {} of communicator {}", what, seq, comm);
  return result;
}

// ---- the judge ----

struct Judging : ::testing::Test {
  CallJudge judge;
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
              const std::string& text = "") {
    InquiryAnswer a;
    a.inquiry = inquiry;
    a.rank = rank;
    a.where = where;
    a.seq = where == InquiryAnswer::Where::before ? 16 : 17;
    a.signature = signature;
    a.text = text;
    judge.answer(a);
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

TEST_F(Judging, AnAnswerThatNeverComesCountsAsLate) {
  auto inquiry = judge.report(report(0, kArrivalMs), 0);
  for (int r = 0; r < 7; r++) answer(inquiry->id, r, InquiryAnswer::Where::at);
  EXPECT_TRUE(at(CallJudge::kRoundMs - 1).verdicts.empty());
  const auto outcome = at(CallJudge::kRoundMs);
  ASSERT_EQ(outcome.verdicts.size(), 1u);
  EXPECT_NE(outcome.verdicts[0].status.text().find("rank 7 did not arrive"), std::string::npos);
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

TEST_F(Judging, AReportedMismatchThatNobodyCanShowIsStillOne) {
  StallReport odd = report(2);
  odd.mismatching_peer = 6;
  int64_t now = 0;
  std::vector<control::Inquiry> inquiries;
  if (const auto first = judge.report(odd, now)) inquiries.push_back(*first);
  std::vector<control::CallVerdict> verdicts;
  for (int round = 0; round < 5 && verdicts.empty(); round++, now += CallJudge::kRoundGapMs) {
    for (const control::Inquiry& inquiry : inquiries)
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

// ---- over the tree ----

struct Calling : ::testing::Test {
  static constexpr int kSize = 20;  // two levels
  LocalJob job{kSize};
  void begin(int64_t arrival_ms) {
    for (auto& options : job.options) options.arrival_timeout_ms = arrival_ms;
    ASSERT_TRUE(job.start());
    for (int r = 0; r < kSize; r++) set_members(r, 1, 0, kSize);
  }
  void set_members(int rank, uint32_t comm, int first, int last) {
    std::vector<int> members;
    for (int r = first; r < last; r++) members.push_back(r);
    const MutexLock lock(job.recorder(rank).mutex);
    job.recorder(rank).members[comm] = members;
  }
  void set_call(int rank, const CallDescriptor& descriptor) {
    const MutexLock lock(job.recorder(rank).mutex);
    job.recorder(rank).calls[descriptor.comm] = descriptor;
  }
  // The same error on all of these, and nothing on the others.
  void expect_error(uint32_t comm, int first, int last, ErrorKind kind, const std::string& text) {
    for (int r = 0; r < kSize; r++) {
      test::Recorder& recorder = job.recorder(r);
      const bool told = recorder.wait(r >= first && r < last ? 5000 : 50,
                                      [&] { return recorder.communicators.count(comm) > 0; });
      ASSERT_EQ(told, r >= first && r < last) << "rank " << r;
      if (!told) continue;
      EXPECT_EQ(recorder.communicators[comm].kind(), kind);
      EXPECT_EQ(recorder.communicators[comm].text(), text) << "rank " << r;
    }
    job.leave();
  }
};

TEST_F(Calling, AMismatchIsToldToAll) {
  begin(20'000);
  const auto common = call(1, 17, 100, "all_reduce count 1000 float32 sum");
  const auto odd = call(1, 17, 200, "all_reduce count 1024 float32 sum");
  for (int r = 0; r < kSize; r++) set_call(r, r == 18 ? odd : common);
  job[19].report_mismatch(common, 18);
  expect_error(1, 0, kSize, SENNIT_MISMATCH,
               "call 17 on communicator 1: rank 18 called all_reduce count 1024 float32 sum; ranks "
               "0-17,19 called "
               "all_reduce count 1000 float32 sum");
}

TEST_F(Calling, AStallFindsTheMismatchToo) {
  begin(20'000);
  const auto common = call(1, 3, 1, "broadcast count 8 int32 root 0");
  const auto odd = call(1, 3, 2, "broadcast count 8 int32 root 4");
  for (int r = 0; r < kSize; r++) set_call(r, r == 0 ? odd : common);
  for (int r = 0; r < kSize; r++) job[r].report_stall(r == 0 ? odd : common);
  expect_error(1, 0, kSize, SENNIT_MISMATCH,
               "call 3 on communicator 1: rank 0 called broadcast count 8 int32 root 4; ranks 1-19 "
               "called broadcast "
               "count 8 int32 root 0");
}

TEST_F(Calling, ARankThatDoesNotArriveIsNamed) {
  begin(1500);
  const auto common = call(1, 4, 1, "barrier");
  for (int r = 0; r < kSize; r++)
    if (r != 7) set_call(r, common);
  for (int i = 0; i < 12; i++) {
    for (int r = 0; r < kSize; r++)
      if (r != 7) job[r].report_stall(common);
    if (job.recorder(3).wait(400, [&] { return job.recorder(3).communicators.count(1) > 0; }))
      break;
  }
  expect_error(
      1, 0, kSize, SENNIT_TIMED_OUT,
      "rank 7 did not arrive in call 4 on communicator 1 (barrier) within 1500 ms; it has called "
      "nothing there");
}

TEST_F(Calling, AGroupWithTheSameNumberIsLeftAlone) {
  begin(20'000);
  for (int r = 0; r < kSize; r++) set_members(r, 2, r < 8 ? 0 : 8, r < 8 ? 8 : kSize);
  for (int r = 0; r < kSize; r++)
    set_call(r, call(2, 9, r == 12 ? 6 : r < 8 ? 5 : 7, r == 12 ? "reduce" : "gather"));
  job[10].report_stall(call(2, 9, 7, "gather"));
  expect_error(2, 8, kSize, SENNIT_MISMATCH,
               "call 9 on communicator 2: rank 12 called reduce; ranks 8-11,13-19 called gather");
}

TEST_F(Calling, AbortReachesAll) {
  begin(20'000);
  job[19].abort(1, "loss is NaN");
  job.recorder(0).wait(3000, [&] { return job.recorder(0).communicators.count(1) > 0; });
  const std::string text = job.recorder(0).communicators[1].text();
  EXPECT_EQ(text.find("communicator 1 was aborted by rank 19 (host "), 0u) << text;
  EXPECT_NE(text.find("): loss is NaN"), std::string::npos) << text;
  expect_error(1, 0, kSize, SENNIT_ABORTED, text);
}

}  // namespace
}  // namespace sennit
