// call_log.hpp: the numbers of a communicator's collective calls, and the latest ones by number:
// what ranks compare when something stalls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "control/control_plane.hpp"
#include "schedule/prepared.hpp"

namespace sennit {

class CallLog {
 public:
  static constexpr size_t kRemembered = 64;

  // `first`: the number of the first call.
  explicit CallLog(uint32_t first = 1) : next_seq_(first) {}

  struct Begun {
    uint32_t seq = 0;
    // It may run another plan than it was prepared to: its number is one that hold_from() names, or
    // it was prepared to an older version of the fabric. Until runs() nobody knows.
    bool undecided = false;
  };
  // Any thread. A call begins.
  Begun begins(const std::shared_ptr<const Prepared>& prepared) SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const uint32_t seq = next_seq_++;
    LoggedCall& call = calls_[seq % calls_.size()];
    call.seq = seq;
    call.refused_before = forget_refusals();
    call.undecided = (holds_ && static_cast<int32_t>(seq - hold_from_) >= 0) ||
                     prepared->fabric_version != version_;
    if (call.prepared != prepared) call.prepared = prepared;
    if (call.waits) call.waits.reset();
    return {seq, call.undecided};
  }
  enum class Refused { call, group };
  // Any thread. The call that comes next was off, or the making of a group, and is not made. The
  // first of several reasons counts, until this rank makes a call, a message or a group.
  void refuses(Refused what, const std::string& why) SENNIT_EXCLUDES(mutex_);
  // Why, where it has stood for kRefusalStandsMs, as a program may put it right; else empty.
  std::string refusal(Refused what) const SENNIT_EXCLUDES(mutex_);
  // A message is made, or nobody waits for what was refused any more.
  void goes_on() SENNIT_EXCLUDES(mutex_) {
    if (!refused_.load(std::memory_order_relaxed)) return;
    const MutexLock lock(mutex_);
    refusals_ = {};
  }
  // A group is to be made. Returns whether something was refused since the last call.
  bool makes_group() SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return forget_refusals();
  }
  // The call is in a stream; `waits`: whether that has not come to it yet.
  void in_stream(uint32_t seq, std::shared_ptr<const std::atomic<bool>> waits)
      SENNIT_EXCLUDES(mutex_);
  // What an undecided call runs.
  void runs(uint32_t seq, const std::shared_ptr<const Prepared>& prepared) SENNIT_EXCLUDES(mutex_);

  // Any thread. Calls from this number on are undecided, and those before it run `version` of the
  // fabric; nothing: all that come do.
  void hold_from(std::optional<uint32_t> number, uint64_t version) SENNIT_EXCLUDES(mutex_);
  // The number of the call that comes next; from it on calls are undecided, or from an earlier one
  // where that is so already.
  uint32_t hold_next() SENNIT_EXCLUDES(mutex_);
  uint32_t next() const SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return next_seq_;
  }

  // Any thread. The call of this number if it is still remembered; the latest where that has not
  // come yet. Of one that is forgotten: the number of the latest, and a text that says so. Leaves
  // the communicator to the caller. False: there was no call, and only what a call's
  // refusal() says is told.
  bool describe(uint32_t seq, CallDescriptor* out) const SENNIT_EXCLUDES(mutex_);

 private:
  struct LoggedCall {
    uint32_t seq = 0;
    bool undecided = false;
    bool refused_before = false;
    std::shared_ptr<const Prepared> prepared;        // null: there was none
    std::shared_ptr<const std::atomic<bool>> waits;  // null: it is in no stream
  };

  struct Refusal {
    std::string why;
    uint64_t at_ns;
  };
  bool forget_refusals() SENNIT_REQUIRES(mutex_) {
    if (!refused_.load(std::memory_order_relaxed)) return false;
    refused_.store(false, std::memory_order_relaxed);
    refusals_ = {};
    return true;
  }
  std::string standing(Refused what) const SENNIT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  uint32_t next_seq_ SENNIT_GUARDED_BY(mutex_);
  bool holds_ SENNIT_GUARDED_BY(mutex_) = false;
  std::atomic<bool> refused_ = false;  // something, since the last call; set behind the lock
  uint32_t hold_from_ SENNIT_GUARDED_BY(mutex_) = 0;
  uint64_t version_ SENNIT_GUARDED_BY(mutex_) = 0;
  std::array<LoggedCall, kRemembered> calls_ SENNIT_GUARDED_BY(mutex_);  // ring by seq
  // Of what is to come, by Refused.
  std::array<std::unique_ptr<const Refusal>, 2> refusals_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit
