// call_watch.cpp: see control/rank/call_watch.hpp.
#include "control/rank/call_watch.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/log.hpp"

namespace sennit::control {
namespace {

// An inner rank passes on one report of a stalled call in this time.
constexpr int64_t kPassOnGapMs = 350;
constexpr size_t kMostPassedOn = 1024;  // then all are forgotten, which costs a few more reports
constexpr size_t kMostFailed = 1024;    // the same, and they may be told again

}  // namespace

std::set<int> CallWatch::members_of(uint32_t comm) const {
  if (!self_.callbacks.members) return {};
  const std::vector<int> members = self_.callbacks.members(comm);
  return {members.begin(), members.end()};
}

// ---- of this rank ----

const CallWatch::Clock& CallWatch::clock_of(const CallDescriptor& call) {
  const int64_t now = self_.now_ms;
  const int64_t forget_ms = CallJudge::forget_ms(self_.options.stall_ms);
  std::erase_if(clocks_, [now, forget_ms](const auto& entry) {
    return now - entry.second.last_ms > forget_ms;
  });
  Clock& clock = clocks_[call.comm];
  if (clock.first_ms == 0 || clock.seq != call.seq)
    clock = {call.seq, now, now, now};
  else if (now - clock.last_ms > 2 * self_.options.stall_ms + kPassOnGapMs)
    clock.unbroken_since_ms = now;  // there was progress in between
  clock.last_ms = now;
  return clock;
}

// What a rank has sent may come after its goodbye, so only a lasting stall tells.
void CallWatch::message_stalled(const CallDescriptor& message) {
  if (!census_.left.contains(message.peer)) return;
  if (message.stalled_ms < std::min(self_.options.arrival_timeout_ms, CallJudge::kLeftMs)) return;
  fail(message.comm,
       {SENNIT_PEER_FAILED, fmt::format("rank {} has left the job, but rank {} is in {}",
                                        message.peer, self_.rank, message.text)});
}

void CallWatch::stalled(CallDescriptor mine, int mismatching_peer) {
  if (mine.peer >= 0) return message_stalled(mine);
  if (CallDescriptor known; mine.makers.empty() && self_.callbacks.describe &&
                            self_.callbacks.describe(mine.comm, mine.seq, &known) &&
                            known.seq == mine.seq)
    mine.refused_before = known.refused_before;
  const Clock& clock = clock_of(mine);
  StallReport report;
  report.mismatching_peer = mismatching_peer;
  report.waited_ms = self_.now_ms - clock.first_ms;
  report.stalled_ms =
      mine.stalled_ms > 0 ? mine.stalled_ms : self_.now_ms - clock.unbroken_since_ms;
  report.call = std::move(mine);
  say(std::move(report));
}

void CallWatch::expire(CallDescriptor mine, int64_t waited_ms) {
  StallReport report;
  report.waited_ms = report.stalled_ms = report.expired_ms = waited_ms;
  report.call = std::move(mine);
  say(std::move(report));
}

void CallWatch::say(StallReport report) {
  if (!self_.serving() || census_.excluded) return;
  report.reporter = self_.rank;
  report.members = members_of(report.call.comm);
  const std::vector<int>& makers = report.call.makers;
  report.makes_group = !makers.empty();
  if (report.makes_group) report.members = {makers.begin(), makers.end()};
  if (!report.members.count(self_.rank)) return;  // destroyed meanwhile
  if (census_.coordinator()) return judge(report);
  if (report.urgent())
    reports_.send_up(encode(report));
  else  // stalls are reported again anyway
    sender_.send_up(encode(report));
}

void CallWatch::fail(uint32_t comm, const Status& status) {
  if (!self_.serving() || census_.excluded) return;
  // All members name the same one, so that what they ask for is known to be the same.
  const std::set<int> members = members_of(comm);
  on_abort_request({comm, members.empty() ? self_.rank : *members.begin(), status});
}

void CallWatch::answer(const Inquiry& inquiry) {
  // Another group's communicator, or not made yet.
  if (!members_of(inquiry.comm).count(inquiry.asker)) return;
  InquiryAnswer answer;
  answer.rank = self_.rank;
  CallDescriptor call;
  if (self_.callbacks.describe && self_.callbacks.describe(inquiry.comm, inquiry.seq, &call)) {
    const auto ahead = static_cast<int32_t>(call.seq - inquiry.seq);  // call numbers may wrap
    answer.where = ahead == 0  ? InquiryAnswer::Where::at
                   : ahead > 0 ? InquiryAnswer::Where::past
                               : InquiryAnswer::Where::before;
    answer.seq = call.seq;
    answer.signature = call.signature;
    answer.in_stream = call.in_stream;
    if (answer.where == InquiryAnswer::Where::at && call.signature != inquiry.signature)
      answer.text = call.text;
  }
  if (answer.where < InquiryAnswer::Where::at) answer.text = call.refusal;
  // By itself, and at once: those below have not answered yet, if there are any.
  InquiryAnswers answers;
  answers.inquiry = inquiry.id;
  if (answer.where == InquiryAnswer::Where::at && answer.signature == inquiry.signature &&
      !answer.in_stream)
    answers.alike.insert(self_.rank);
  else
    answers.others.push_back(std::move(answer));
  if (census_.coordinator())
    judge_.answer(std::move(answers));
  else
    sender_.send_up(encode(answers));
}

// ---- of others ----

void CallWatch::on_report(const StallReport& report) {
  if (census_.coordinator()) return judge(report);
  if (report.urgent()) return reports_.send_up(encode(report));
  int64_t& last = passed_on_[{report.call.comm, *report.members.begin(), report.call.seq}];
  if (last != 0 && self_.now_ms - last < kPassOnGapMs) return;
  if (passed_on_.size() > kMostPassedOn)
    passed_on_.clear();
  else
    last = self_.now_ms;
  sender_.send_up(encode(report));
}

void CallWatch::on_inquiry(const Inquiry& inquiry) { ask(inquiry); }

void CallWatch::on_answers(InquiryAnswers answers) {
  if (census_.coordinator()) return judge_.answer(std::move(answers));
  if (gathered_.empty()) pass_on_ms_ = self_.now_ms + kGatherMs;
  InquiryAnswers& all = gathered_[answers.inquiry];
  all.inquiry = answers.inquiry;
  all.alike.merge(answers.alike);
  std::move(answers.others.begin(), answers.others.end(), std::back_inserter(all.others));
}

// Where there is no parent they are lost: the coordinator asks again.
void CallWatch::pass_on() {
  for (const auto& [inquiry, answers] : std::exchange(gathered_, {}))
    sender_.send_up(encode(answers));
}

void CallWatch::on_comm_failed(const CommFailed& message) { tell(message); }

void CallWatch::on_abort_request(const AbortRequest& request) {
  if (!census_.coordinator()) return reports_.send_up(encode(request));
  if (failed_.count({request.comm, request.anchor})) return;
  announce(request.comm, request.anchor, request.status);
}

// ---- the coordinator ----

// All members of the communicator, this rank among them.
void CallWatch::ask(const Inquiry& inquiry) {
  sender_.flood_down(encode(inquiry));
  answer(inquiry);
}

void CallWatch::judge(const StallReport& report) {
  if (self_.callbacks.stall_reported) self_.callbacks.stall_reported();
  const std::optional<Inquiry> inquiry = judge_.report(report, self_.now_ms);
  if (!inquiry) return;
  ask(*inquiry);
  self_.due(self_.now_ms + CallJudge::kRoundMs);
}

void CallWatch::tick() {
  if (!gathered_.empty() && self_.now_ms < pass_on_ms_)
    self_.due(pass_on_ms_);
  else
    pass_on();
  if (!self_.serving() || !census_.coordinator()) return;
  const CallJudge::Outcome outcome =
      judge_.judge(self_.now_ms, census_.dead, census_.left, self_.options.arrival_timeout_ms);
  for (const std::string& text : outcome.waiting) log(LogLevel::info, "{}", text);
  for (const Inquiry& inquiry : outcome.inquiries) ask(inquiry);
  for (const CallVerdict& verdict : outcome.verdicts)
    announce(verdict.comm, verdict.anchor, verdict.status);
  if (outcome.next_ms != INT64_MAX) self_.due(outcome.next_ms);
}

void CallWatch::announce(uint32_t comm, int anchor, const Status& status) {
  log(LogLevel::error, "{}", status.text());
  tell({announcements_.new_number(), comm, anchor, status});
}

void CallWatch::tell(const CommFailed& message) {
  const EncodedFrame frame = encode(message);
  if (!announcements_.remember(message.event, frame)) return;
  if (failed_.size() >= kMostFailed) failed_.clear();
  failed_.emplace(message.comm, message.anchor);
  sender_.flood_down(frame);
  if (self_.callbacks.communicator_failed)
    self_.callbacks.communicator_failed(message.comm, message.anchor, message.status);
}

// What a parent was told of, and nobody may have heard. Answers were another coordinator's.
void CallWatch::became_coordinator() {
  gathered_.clear();
  for (const EncodedFrame& frame : reports_.take_back()) {
    const ReceivedFrame message = open_frame(frame);
    if (message.type == AbortRequest::kType) {
      if (const auto request = decode<AbortRequest>(message.payload, self_.size))
        on_abort_request(*request);
    } else if (const auto report = decode<StallReport>(message.payload, self_.size)) {
      on_report(*report);
    }
  }
}

}  // namespace sennit::control
