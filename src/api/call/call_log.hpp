// call_log.hpp: the latest collective calls of a communicator, by number: what ranks compare when
// something stalls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/mutex.hpp"
#include "control/control_plane.hpp"
#include "schedule/prepared.hpp"

namespace sennit {

class CallLog {
 public:
  static constexpr size_t kRemembered = 64;

  // `first`: the number of the first call.
  explicit CallLog(uint32_t first = 1) : next_seq_(first) {}

  // Any thread. A call begins; returns its number.
  uint32_t begins(const std::shared_ptr<const Prepared>& prepared) SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const uint32_t seq = next_seq_++;
    LoggedCall& call = calls_[seq % calls_.size()];
    call.seq = seq;
    if (call.prepared != prepared) call.prepared = prepared;
    return seq;
  }

  // Any thread. The call of this number if it is still remembered; the latest where that has not
  // come yet. Of one that is forgotten: the number of the latest, and a text that says so. Leaves
  // the communicator to the caller. False: there was no call.
  bool describe(uint32_t seq, CallDescriptor* out) const SENNIT_EXCLUDES(mutex_);

 private:
  struct LoggedCall {
    uint32_t seq = 0;
    std::shared_ptr<const Prepared> prepared;  // null: there was none
  };

  mutable Mutex mutex_;
  uint32_t next_seq_ SENNIT_GUARDED_BY(mutex_);
  std::array<LoggedCall, kRemembered> calls_ SENNIT_GUARDED_BY(mutex_);  // ring by seq
};

}  // namespace sennit
