// calls.cpp: stalls, mismatches and aborts. A rank whose call makes no progress says so up the
// tree; the coordinator asks the members what they are doing (control/judge.hpp compares) and,
// where calls differ or somebody is too late, floods the communicator's error. Nothing is sent
// while calls progress.
//
// Disjoint groups may use the same communicator number. Every frame therefore names a member beside
// the number, and only ranks whose communicator of that number contains that member feel addressed.
// A failure is told to all ranks, because one that has not made the communicator yet must know of
// it as well.
#include <algorithm>

#include <fmt/format.h>

#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit::control {
namespace {

constexpr size_t kEventsKept = 64;
constexpr size_t kToldKept = 64;
// an inner rank passes on one report of a stalled call in this time
constexpr int64_t kForwardGapMs = 350;

Report read_report(Reader& in, int size) {
  Report report;
  report.call.comm = in.u32();
  report.call.seq = in.u32();
  report.call.signature = in.u64();
  report.call.text = in.text();
  report.reporter = in.rank();
  report.mismatching_peer = in.rank();
  report.waited_ms = static_cast<int64_t>(in.u64());
  report.stalled_ms = static_cast<int64_t>(in.u64());
  report.members = in.ranks(size);
  return report;
}

Buffer write_report(const Report& report) {
  return Writer(Frame::stall)
      .u32(report.call.comm)
      .u32(report.call.seq)
      .u64(report.call.signature)
      .text(report.call.text)
      .rank(report.reporter)
      .rank(report.mismatching_peer)
      .u64(static_cast<uint64_t>(report.waited_ms))
      .u64(static_cast<uint64_t>(report.stalled_ms))
      .ranks(report.members)
      .finish();
}

Buffer write_inquiry(const Inquiry& inquiry) {
  return Writer(Frame::inquire)
      .u64(inquiry.id)
      .u32(inquiry.comm)
      .u32(inquiry.seq)
      .u64(inquiry.signature)
      .rank(inquiry.asker)
      .finish();
}

}  // namespace

std::set<int> ControlPlane::members_of(uint32_t comm) const {
  if (!callbacks_.members) return {};
  const std::vector<int> members = callbacks_.members(comm);
  return {members.begin(), members.end()};
}

void ControlPlane::stalled(CallDescriptor mine, int mismatching_peer) {
  if ((phase_ != Phase::running && phase_ != Phase::leaving) || excluded_) return;
  Report report;
  report.members = members_of(mine.comm);
  if (!report.members.count(rank_)) return;  // destroyed meanwhile
  std::erase_if(stall_clocks_, [this](const auto& entry) {
    return now_ms_ - entry.second.last_ms > CallJudge::kForgetMs;
  });
  StallClock& clock = stall_clocks_[mine.comm];
  if (clock.first_ms == 0 || clock.seq != mine.seq) clock = {mine.seq, now_ms_, now_ms_, now_ms_};
  // there was progress in between
  else if (now_ms_ - clock.last_ms > 2 * options_.stall_ms + kForwardGapMs)
    clock.unbroken_since_ms = now_ms_;
  clock.last_ms = now_ms_;
  report.call = std::move(mine);
  report.reporter = rank_;
  report.mismatching_peer = mismatching_peer;
  report.waited_ms = now_ms_ - clock.first_ms;
  report.stalled_ms =
      report.call.stalled_ms > 0 ? report.call.stalled_ms : now_ms_ - clock.unbroken_since_ms;
  if (coordinator()) return judge_report(report);
  const Buffer frame = write_report(report);
  if (mismatching_peer >= 0) send_up_surely(frame);
  // stalls are reported again anyway
  else
    send_up(frame);
}

void ControlPlane::on_stall(Reader& in, const Message& message) {
  const Report report = read_report(in, size_);
  if (!in.ok() || report.members.empty()) return in.fail();
  if (coordinator()) return judge_report(report);
  if (report.mismatching_peer < 0) {
    int64_t& last = stalls_forwarded_[{report.call.comm, *report.members.begin(), report.call.seq}];
    if (last != 0 && now_ms_ - last < kForwardGapMs) return;
    if (stalls_forwarded_.size() > 1024)
      stalls_forwarded_.clear();
    else
      last = now_ms_;
  }
  if (report.mismatching_peer >= 0)
    send_up_surely(forward(message));
  else
    send_up(forward(message));
}

void ControlPlane::judge_report(const Report& report) {
  const std::optional<Inquiry> inquiry = calls_.report(report, now_ms_);
  if (!inquiry) return;
  flood_down(write_inquiry(*inquiry));
  answer_inquiry(*inquiry);
  due(now_ms_ + CallJudge::kRoundMs);
}

void ControlPlane::on_inquire(Reader& in, const Message& message) {
  Inquiry inquiry;
  inquiry.id = in.u64();
  inquiry.comm = in.u32();
  inquiry.seq = in.u32();
  inquiry.signature = in.u64();
  inquiry.asker = in.rank();
  if (!in.ok()) return;
  flood_down(forward(message));
  answer_inquiry(inquiry);
}

void ControlPlane::answer_inquiry(const Inquiry& inquiry) {
  // another group's communicator, or not made yet
  if (!members_of(inquiry.comm).count(inquiry.asker)) return;
  Answer answer;
  answer.rank = rank_;
  CallDescriptor call;
  if (callbacks_.describe && callbacks_.describe(inquiry.comm, inquiry.seq, &call)) {
    const auto ahead = static_cast<int32_t>(call.seq - inquiry.seq);  // call numbers may wrap
    answer.where = ahead == 0  ? Answer::Where::at
                   : ahead > 0 ? Answer::Where::past
                               : Answer::Where::before;
    answer.seq = call.seq;
    answer.signature = call.signature;
    if (answer.where == Answer::Where::at && call.signature != inquiry.signature)
      answer.text = call.text;
  }
  if (coordinator()) return calls_.answer(inquiry.id, std::move(answer));
  send_up(Writer(Frame::answer)
              .u64(inquiry.id)
              .rank(answer.rank)
              .u8(static_cast<uint8_t>(answer.where))
              .u32(answer.seq)
              .u64(answer.signature)
              .text(answer.text)
              .finish());
}

void ControlPlane::on_answer(Reader& in, const Message& message) {
  if (!coordinator()) {
    send_up(forward(message));
    return;
  }
  const uint64_t inquiry = in.u64();
  Answer answer;
  answer.rank = in.rank();
  const uint8_t where = in.u8();
  answer.seq = in.u32();
  answer.signature = in.u64();
  answer.text = in.text();
  if (!in.ok() || where > static_cast<uint8_t>(Answer::Where::past)) return in.fail();
  answer.where = static_cast<Answer::Where>(where);
  calls_.answer(inquiry, std::move(answer));
}

void ControlPlane::tick_calls(int64_t now) {
  if ((phase_ != Phase::running && phase_ != Phase::leaving) || !coordinator()) return;
  const CallJudge::Outcome outcome = calls_.judge(now, dead_, left_, options_.arrival_timeout_ms);
  for (const std::string& text : outcome.waiting) log(LogLevel::info, "{}", text);
  for (const Inquiry& inquiry : outcome.inquiries) {
    flood_down(write_inquiry(inquiry));
    answer_inquiry(inquiry);
  }
  for (const Verdict& verdict : outcome.verdicts)
    fail_communicator(verdict.comm, verdict.anchor, verdict.status);
  if (outcome.next_ms != INT64_MAX) due(outcome.next_ms);
}

void ControlPlane::fail_communicator(uint32_t comm, int anchor, const Status& status) {
  log(LogLevel::error, "{}", status.text());
  const uint64_t event = new_event();
  const Buffer frame =
      Writer(Frame::comm_failed).u64(event).u32(comm).rank(anchor).status(status).finish();
  remember(event, frame);
  flood_down(frame);
  deliver_comm_failed(comm, anchor, status);
}

void ControlPlane::on_comm_failed(Reader& in, const Message& message) {
  const uint64_t event = in.u64();
  const uint32_t comm = in.u32();
  const int anchor = in.rank();
  const Status status = in.status();
  const Buffer frame = forward(message);
  if (!in.ok() || !remember(event, frame)) return;
  flood_down(frame);
  deliver_comm_failed(comm, anchor, status);
}

void ControlPlane::deliver_comm_failed(uint32_t comm, int anchor, const Status& status) {
  if (callbacks_.communicator_failed) callbacks_.communicator_failed(comm, anchor, status);
}

bool ControlPlane::remember(uint64_t event, const Buffer& frame) {
  if (!seen_events_.insert(event).second) return false;
  events_.emplace_back(event, frame);
  if (events_.size() > kEventsKept) {
    seen_events_.erase(events_.front().first);
    events_.pop_front();
  }
  return true;
}

void ControlPlane::request_failure(uint32_t comm, const Status& status) {
  if ((phase_ != Phase::running && phase_ != Phase::leaving) || excluded_) return;
  if (coordinator()) return fail_communicator(comm, rank_, status);
  const Buffer frame = Writer(Frame::abort_request).u32(comm).rank(rank_).status(status).finish();
  send_up_surely(frame);
}

void ControlPlane::on_abort_request(Reader& in, const Message& message) {
  const uint32_t comm = in.u32();
  const int anchor = in.rank();
  const Status status = in.status();
  if (!in.ok()) return;
  if (coordinator())
    fail_communicator(comm, anchor, status);
  else
    send_up_surely(forward(message));
}

// A parent that is about to leave, or dies, may not have passed on what it was told last: the next
// one is told again. To be told twice does no harm.
void ControlPlane::send_up_surely(const Buffer& frame) {
  if (told_up_.size() >= kToldKept) told_up_.pop_front();
  told_up_.push_back({frame, send_up(frame) ? now_ms_ : 0});
}

// What a parent was told of, when this rank turns out to be the coordinator itself.
void ControlPlane::take_own(const Buffer& frame) {
  const std::span<const std::byte> bytes = *frame;
  Reader header(bytes.first(kFrameHeaderBytes));
  header.u32();
  const auto payload = bytes.subspan(kFrameHeaderBytes);
  const Message message{static_cast<Frame>(header.u16()), {payload.begin(), payload.end()}};
  Reader in(message.payload);
  if (message.frame == Frame::abort_request) on_abort_request(in, message);
  if (message.frame == Frame::stall) on_stall(in, message);
}

}  // namespace sennit::control
