// call_log.hpp: the latest collective calls of a communicator, by number: what ranks compare when
// something stalls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.hpp"
#include "control/control_plane.hpp"
#include "schedule/prepared.hpp"

namespace sennit {

class CallLog {
 public:
  static constexpr size_t kRemembered = 64;

  // The user's thread, for every call in turn, numbered from 1 on: it begins, it is over.
  void begins(uint32_t seq, const std::shared_ptr<const Prepared>& prepared)
      SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    LoggedCall& call = calls_[seq % calls_.size()];
    call.seq = seq;
    if (call.prepared != prepared) call.prepared = prepared;
    call.finished.store(false, std::memory_order_relaxed);
  }
  // Only the user's thread writes calls_, so it may look without the lock.
  void is_over(uint32_t seq) SENNIT_NO_THREAD_SAFETY_ANALYSIS {
    LoggedCall& call = calls_[seq % calls_.size()];
    if (call.seq == seq) call.finished.store(true, std::memory_order_relaxed);
  }

  // Any thread. The call of this number if it is still remembered; the latest where that has not
  // come yet. Of one that is forgotten: the number of the latest, and a text that says so. Leaves
  // the communicator to the caller. False: there was no call.
  bool describe(uint32_t seq, CallDescriptor* out) const SENNIT_EXCLUDES(mutex_);

 private:
  struct LoggedCall {
    uint32_t seq = 0;
    std::shared_ptr<const Prepared> prepared;  // null: there was none
    std::atomic<bool> finished = false;
  };

  mutable Mutex mutex_;
  std::array<LoggedCall, kRemembered> calls_ SENNIT_GUARDED_BY(mutex_);  // ring by seq
};

}  // namespace sennit
