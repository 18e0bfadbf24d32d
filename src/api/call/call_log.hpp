// call_log.hpp: the numbers of a communicator's collective calls, and the latest ones by number:
// what ranks compare when something stalls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

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
    call.undecided = (holds_ && static_cast<int32_t>(seq - hold_from_) >= 0) ||
                     prepared->fabric_version != version_;
    if (call.prepared != prepared) call.prepared = prepared;
    if (call.waits) call.waits.reset();
    return {seq, call.undecided};
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
  // the communicator to the caller. False: there was no call.
  bool describe(uint32_t seq, CallDescriptor* out) const SENNIT_EXCLUDES(mutex_);

 private:
  struct LoggedCall {
    uint32_t seq = 0;
    bool undecided = false;
    std::shared_ptr<const Prepared> prepared;        // null: there was none
    std::shared_ptr<const std::atomic<bool>> waits;  // null: it is in no stream
  };

  mutable Mutex mutex_;
  uint32_t next_seq_ SENNIT_GUARDED_BY(mutex_);
  bool holds_ SENNIT_GUARDED_BY(mutex_) = false;
  uint32_t hold_from_ SENNIT_GUARDED_BY(mutex_) = 0;
  uint64_t version_ SENNIT_GUARDED_BY(mutex_) = 0;
  std::array<LoggedCall, kRemembered> calls_ SENNIT_GUARDED_BY(mutex_);  // ring by seq
};

}  // namespace sennit
