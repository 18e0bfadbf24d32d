// call_log.cpp: see api/call/call_log.hpp.
#include "api/call/call_log.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/clock.hpp"

namespace sennit {

void CallLog::runs(uint32_t seq, const std::shared_ptr<const Prepared>& prepared) {
  const MutexLock lock(mutex_);
  LoggedCall& call = calls_[seq % calls_.size()];
  if (call.seq != seq) return;
  call.prepared = prepared;
  call.undecided = false;
}

void CallLog::refuses(Refused what, const std::string& why) {
  constexpr size_t kMostBytes = 500;
  const MutexLock lock(mutex_);
  refused_.store(true, std::memory_order_relaxed);
  std::unique_ptr<const Refusal>& refusal = refusals_[static_cast<size_t>(what)];
  if (!refusal) refusal = std::make_unique<Refusal>(Refusal{why.substr(0, kMostBytes), now_ns()});
}

std::string CallLog::refusal(Refused what) const {
  const MutexLock lock(mutex_);
  return standing(what);
}

std::string CallLog::standing(Refused what) const {
  constexpr uint64_t kStandsNs = static_cast<uint64_t>(kRefusalStandsMs) * 1'000'000;
  const std::unique_ptr<const Refusal>& refusal = refusals_[static_cast<size_t>(what)];
  return refusal && now_ns() - refusal->at_ns >= kStandsNs ? refusal->why : "";
}

void CallLog::in_stream(uint32_t seq, std::shared_ptr<const std::atomic<bool>> waits) {
  const MutexLock lock(mutex_);
  LoggedCall& call = calls_[seq % calls_.size()];
  if (call.seq == seq) call.waits = std::move(waits);
}

void CallLog::hold_from(std::optional<uint32_t> number, uint64_t version) {
  const MutexLock lock(mutex_);
  version_ = version;
  holds_ = number.has_value();
  hold_from_ = number.value_or(0);
}

uint32_t CallLog::hold_next() {
  const MutexLock lock(mutex_);
  if (!holds_ || static_cast<int32_t>(next_seq_ - hold_from_) < 0) hold_from_ = next_seq_;
  holds_ = true;
  return next_seq_;
}

bool CallLog::describe(uint32_t seq, CallDescriptor* out) const {
  const MutexLock lock(mutex_);
  const LoggedCall* found = &calls_[seq % calls_.size()];
  const auto before = [](const LoggedCall& a, const LoggedCall& b) {
    return static_cast<int32_t>(a.seq - b.seq) < 0;  // call numbers may wrap
  };
  if (found->seq != seq) found = &*std::max_element(calls_.begin(), calls_.end(), before);
  out->refusal = standing(Refused::call);
  if (!found->prepared) return false;
  out->seq = found->seq;
  const bool forgotten = static_cast<int32_t>(found->seq - seq) > 0;
  out->refused_before = found->refused_before;
  out->signature = forgotten || found->undecided ? kNotKnownYet : found->prepared->signature;
  // Calls of a stream come one after the other. Where the oldest that is remembered waits for its
  // stream, one before it may wait as well.
  const LoggedCall& told = forgotten ? calls_[(next_seq_ - kRemembered) % calls_.size()] : *found;
  out->in_stream = told.waits && *told.waits;
  out->text =
      forgotten ? fmt::format("call {} is no longer known", seq) : found->prepared->description;
  return true;
}

}  // namespace sennit
