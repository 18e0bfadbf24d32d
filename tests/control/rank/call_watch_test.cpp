// call_watch_test.cpp: what one rank says when calls stall, differ or are aborted, by what was said
// to it. What the judge concludes is in call_judge_test.
//
// ctest not-under-tsan: it has one thread
#include "control/rank/call_watch.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

using test::FakeSender;
using test::options_of;

constexpr int kSize = 4;

struct One {
  std::map<uint32_t, CallDescriptor> calls;  // that this rank is in
  std::map<uint32_t, Status> failed;
  Self self;
  Census census{self};
  FakeSender sender{kSize};
  Announcements announcements;
  CallWatch watch{self, census, sender, announcements};

  explicit One(int rank, int64_t stall_ms = BootstrapOptions().stall_ms)
      : self(options(rank, stall_ms), callbacks()), announcements(rank) {
    self.phase = Phase::running;
    self.now_ms = 1000;
  }
  static BootstrapOptions options(int rank, int64_t stall_ms) {
    BootstrapOptions result = options_of(rank, kSize);
    result.stall_ms = stall_ms;
    return result;
  }
  Control::Callbacks callbacks() {
    Control::Callbacks result;
    result.members = [](uint32_t) { return std::vector<int>{0, 1, 2, 3}; };
    result.describe = [this](uint32_t comm, uint32_t, CallDescriptor* out) {
      if (!calls.count(comm)) return false;
      *out = calls[comm];
      return true;
    };
    result.communicator_failed = [this](uint32_t comm, int, const Status& status) {
      failed[comm] = status;
    };
    return result;
  }
};

CallDescriptor call(uint32_t seq, uint64_t signature) {
  CallDescriptor result;
  result.comm = 1;
  result.seq = seq;
  result.signature = signature;
  result.text = "barrier";
  return result;
}

StallReport report_of(int reporter, uint32_t seq) {
  StallReport report;
  report.call = call(seq, 5);
  report.reporter = reporter;
  report.members = {0, 1, 2, 3};
  return report;
}

TEST(Stalls, AreReportedWithHowLongTheyLast) {
  One rank(2);
  rank.watch.stalled(call(7, 5), -1);
  rank.self.now_ms += 400;
  rank.watch.stalled(call(7, 5), -1);
  auto up = rank.sender.take_up<StallReport>();
  ASSERT_EQ(up.size(), 2u);
  EXPECT_EQ(up[0].waited_ms, 0);
  EXPECT_EQ(up[1].waited_ms, 400);
  EXPECT_EQ(up[1].stalled_ms, 400);
  EXPECT_EQ(up[1].reporter, 2);
  rank.self.now_ms += 5000;  // no report meanwhile: there was progress
  rank.watch.stalled(call(7, 5), -1);
  up = rank.sender.take_up<StallReport>();
  EXPECT_EQ(up[0].waited_ms, 5400);
  EXPECT_EQ(up[0].stalled_ms, 0);
}

// Nobody will answer it, and what was on its way has had the time to come.
TEST(Stalls, OfAMessageToWhoHasLeftAreAnError) {
  for (const int self : {0, 2}) {
    One rank(self);
    CallDescriptor message = call(0, 0);
    message.text = "recv count 1 int32 from rank 3, tag 0, on communicator 1";
    message.peer = 3;
    message.stalled_ms = 60'000;
    rank.watch.stalled(message, -1);
    rank.census.left = {1};
    rank.watch.stalled(message, -1);
    EXPECT_TRUE(rank.sender.up.empty()) << "it is only late";
    rank.census.left = {1, 3};
    message.stalled_ms = 9'000;
    rank.watch.stalled(message, -1);
    EXPECT_TRUE(rank.sender.up.empty()) << "it may be on its way";
    EXPECT_TRUE(rank.failed.empty());
    message.stalled_ms = 10'000;
    rank.watch.stalled(message, -1);
    const Status status = self == 0 ? rank.failed[1] : [&] {
      const auto asked = rank.sender.take_up<AbortRequest>();
      return asked.size() == 1 ? asked[0].status : Status();
    }();
    EXPECT_EQ(status.kind(), SENNIT_PEER_FAILED);
    EXPECT_EQ(status.text(), "rank 3 has left the job, but rank " + std::to_string(self) +
                                 " is in recv count 1 int32 from rank 3, tag 0, on communicator 1");
  }
}

TEST(Stalls, OfOthersArePassedOnNowAndThen) {
  One rank(1);
  rank.watch.on_report(report_of(2, 7));
  rank.watch.on_report(report_of(3, 7));
  EXPECT_EQ(rank.sender.take_up<StallReport>().size(), 1u);
  rank.watch.on_report(report_of(3, 8));
  EXPECT_EQ(rank.sender.take_up<StallReport>().size(), 1u) << "another call";
  rank.self.now_ms += 350;
  rank.watch.on_report(report_of(3, 7));
  EXPECT_EQ(rank.sender.take_up<StallReport>().size(), 1u);
}

TEST(Stalls, OfWhomTheTimeIsOverAreAllPassedOn) {
  One inner(1);
  StallReport over = report_of(2, 7);
  over.expired_ms = 0;
  inner.watch.on_report(report_of(3, 7));
  inner.watch.on_report(over);
  EXPECT_EQ(inner.sender.take_up<StallReport>().size(), 2u);
  inner.watch.expire(call(7, 5), 250);
  const auto up = inner.sender.take_up<StallReport>();
  ASSERT_EQ(up.size(), 1u);
  EXPECT_EQ(up[0].expired_ms, 250);
  EXPECT_EQ(up[0].reporter, 1);
  inner.census.dead = {0};
  inner.watch.became_coordinator();
  EXPECT_EQ(inner.sender.take_down<Inquiry>().size(), 1u) << "nobody may have heard of it";
}

TEST(Inquiries, AreAnsweredWithATextOnlyWhereCallsDiffer) {
  One rank(2);
  const auto answer_to = [&](uint64_t signature) {
    rank.watch.on_inquiry({9, 1, 7, signature, 0});
    EXPECT_EQ(rank.sender.take_down<Inquiry>().size(), 1u);
    const InquiryAnswers answers = rank.sender.take_up<InquiryAnswers>().at(0);
    EXPECT_EQ(answers.alike.size() + answers.others.size(), 1u);
    if (answers.alike.count(2)) return InquiryAnswer{2, InquiryAnswer::Where::at, 7, signature, ""};
    return answers.others.at(0);
  };
  EXPECT_EQ(answer_to(5).where, InquiryAnswer::Where::absent);
  rank.calls[1] = call(7, 5);
  EXPECT_EQ(answer_to(5).where, InquiryAnswer::Where::at);
  EXPECT_EQ(answer_to(5).text, "");
  EXPECT_EQ(answer_to(6).text, "barrier");
  rank.calls[1] = call(6, 5);
  EXPECT_EQ(answer_to(5).where, InquiryAnswer::Where::before);
  rank.calls[1] = call(8, 5);
  EXPECT_EQ(answer_to(5).where, InquiryAnswer::Where::past);
}

TEST(Inquiries, ThoseOfWhomTheCallIsInAStreamAreNotAlike) {
  One rank(2);
  rank.calls[1] = call(7, 5);
  rank.calls[1].in_stream = true;
  rank.watch.on_inquiry({9, 1, 7, 5, 0});
  const auto up = rank.sender.take_up<InquiryAnswers>();
  ASSERT_EQ(up.size(), 1u);
  EXPECT_TRUE(up[0].alike.empty());
  ASSERT_EQ(up[0].others.size(), 1u);
  EXPECT_TRUE(up[0].others[0].in_stream);
}

TEST(Answers, OfOthersGoUpTogether) {
  One inner(1);
  inner.calls[1] = call(7, 5);
  inner.watch.on_inquiry({9, 1, 7, 5, 0});
  const auto own = inner.sender.take_up<InquiryAnswers>();
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].alike, std::set{1}) << "nobody waits for its own";
  const int64_t first_ms = inner.self.now_ms;
  inner.watch.on_answers({9, {2}, {}});
  inner.watch.on_answers({10, {}, {{2, InquiryAnswer::Where::before, 6, 0, ""}}});
  inner.self.now_ms += CallWatch::kGatherMs - 1;
  inner.watch.on_answers({9, {}, {{3, InquiryAnswer::Where::at, 7, 6, "broadcast"}}});
  inner.self.next_due_ms = INT64_MAX;
  inner.watch.tick();
  EXPECT_TRUE(inner.sender.take_up<InquiryAnswers>().empty());
  EXPECT_EQ(inner.self.next_due_ms, first_ms + CallWatch::kGatherMs);
  inner.self.now_ms++;
  inner.watch.tick();
  const auto up = inner.sender.take_up<InquiryAnswers>();
  ASSERT_EQ(up.size(), 2u) << "one of each inquiry";
  EXPECT_EQ(up[0].inquiry, 9u);
  EXPECT_EQ(up[0].alike, std::set{2});
  ASSERT_EQ(up[0].others.size(), 1u);
  EXPECT_EQ(up[0].others[0].text, "broadcast");
  EXPECT_EQ(up[1].others.at(0).where, InquiryAnswer::Where::before);
  inner.watch.tick();
  EXPECT_TRUE(inner.sender.take_up<InquiryAnswers>().empty()) << "once";
}

TEST(Answers, ToACoordinatorThatIsDeadCountForNoneOfItsSuccessors) {
  One heir(1), old(0);
  old.watch.on_report(report_of(2, 7));
  const auto before = old.sender.take_down<Inquiry>();
  heir.watch.on_answers({before.at(0).id, {2, 3}, {}});  // on their way
  heir.census.dead = {0};
  heir.watch.became_coordinator();
  heir.watch.tick();
  heir.calls[1] = call(7, 6);
  heir.watch.on_report(report_of(2, 7));
  const auto after = heir.sender.take_down<Inquiry>();
  ASSERT_EQ(after.size(), 1u);
  EXPECT_NE(after[0].id, before[0].id);
  heir.watch.on_answers({before[0].id, {2, 3}, {}});
  heir.self.now_ms += CallJudge::kRoundMs;
  heir.watch.tick();
  EXPECT_TRUE(heir.sender.take_down<CommFailed>().empty()) << "nobody else has answered";
}

TEST(Coordinator, AsksAllAndTellsAll) {
  One rank(0);
  rank.calls[1] = call(7, 6);
  rank.watch.on_report(report_of(2, 7));
  const auto asked = rank.sender.take_down<Inquiry>();
  ASSERT_EQ(asked.size(), 1u);
  for (const int other : {1, 2, 3}) rank.watch.on_answers({asked[0].id, {other}, {}});
  rank.watch.tick();
  const auto told = rank.sender.take_down<CommFailed>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].status.kind(), SENNIT_MISMATCH);
  EXPECT_EQ(rank.failed[1].text(), told[0].status.text());
}

TEST(Coordinator, NamesWhoDoesNotComeHoweverSeldomStallsAreReported) {
  constexpr int64_t kSeldomMs = 15'000;
  One rank(0, kSeldomMs);  // who has 10 s to come
  rank.calls[1] = call(7, 5);
  const auto report = [&] {
    rank.watch.stalled(call(7, 5), -1);
    const auto asked = rank.sender.take_down<Inquiry>();
    EXPECT_EQ(asked.size(), 1u);
    for (const Inquiry& inquiry : asked) rank.watch.on_answers({inquiry.id, {1, 2}, {}});
    rank.self.now_ms += CallJudge::kRoundMs;
    rank.watch.tick();
    return rank.sender.take_down<CommFailed>();
  };
  EXPECT_TRUE(report().empty());
  rank.self.now_ms += kSeldomMs;
  const auto told = report();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].status.kind(), SENNIT_TIMED_OUT);
  EXPECT_EQ(told[0].status.text().find("rank 3 did not arrive"), 0u) << told[0].status.text();
}

TEST(Aborts, GoUpAndComeDownOnce) {
  One rank(2);
  rank.watch.fail(1, {SENNIT_ABORTED, "loss is NaN"});
  const auto up = rank.sender.take_up<AbortRequest>();
  ASSERT_EQ(up.size(), 1u);
  EXPECT_EQ(up[0].anchor, 0) << "the lowest member, whoever asks";
  EXPECT_TRUE(rank.failed.empty()) << "the coordinator says so to all alike";
  const CommFailed failed{1, 1, 2, up[0].status};
  rank.watch.on_comm_failed(failed);
  rank.watch.on_comm_failed(failed);
  EXPECT_EQ(rank.sender.take_down<CommFailed>().size(), 1u);
  EXPECT_EQ(rank.failed[1].text(), "loss is NaN");
}

TEST(Aborts, ThatAllMembersAskForAreToldOnce) {
  const Status why{SENNIT_ABORTED, "loss is NaN"};
  One root(0);
  for (const int member : {1, 2, 3}) {
    One rank(member);
    rank.watch.fail(1, why);
    for (const auto& request : rank.sender.take_up<AbortRequest>())
      root.watch.on_abort_request(request);
  }
  const auto told = root.sender.take_down<CommFailed>();
  ASSERT_EQ(told.size(), 1u);
  root.watch.on_abort_request({1, 2, why});
  EXPECT_EQ(root.sender.take_down<CommFailed>().size(), 1u) << "another group's of that number";
  One heir(1);
  heir.watch.on_comm_failed(told[0]);
  EXPECT_EQ(heir.sender.take_down<CommFailed>().size(), 1u);
  heir.census.dead = {0};
  heir.watch.on_abort_request({1, told[0].anchor, why});
  EXPECT_TRUE(heir.sender.take_down<CommFailed>().empty()) << "it has passed that on";
}

TEST(Aborts, ThatNobodyMayHaveHeardAreDecidedByTheSuccessor) {
  One rank(2);
  rank.watch.fail(1, {SENNIT_ABORTED, "loss is NaN"});
  rank.census.dead = {0, 1};
  rank.watch.became_coordinator();
  EXPECT_EQ(rank.failed[1].text(), "loss is NaN");
  EXPECT_EQ(rank.sender.take_down<CommFailed>().size(), 1u);
}

}  // namespace
}  // namespace sennit::control
