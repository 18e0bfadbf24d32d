// communicator_state.hpp: what any thread may know of a communicator, and do to it: its members,
// whether it has failed and why, and its latest calls, which ranks compare when something stalls.
//
// fail() and what calls it take the engine's lock, and the control plane's; call them without.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "base/status.hpp"
#include "control/control_plane.hpp"
#include "engine/engine.hpp"
#include "schedule/prepared.hpp"

namespace sennit {

class CommunicatorState {
 public:
  // `members`: world ranks, by rank in the communicator; `self` is this rank's world rank, one of
  // them. Engine and control plane outlive this.
  CommunicatorState(uint32_t id, std::vector<int> members, int self, Engine& engine,
                    Control& control);
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;

  uint32_t id() const { return id_; }
  const std::vector<int>& members() const { return members_; }
  int rank() const { return rank_; }  // this rank's in the communicator
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[static_cast<size_t>(rank)]; }
  bool has(int world_rank) const;

  // Ok, or what the communicator failed with: the first failure stands.
  Status status() const SENNIT_EXCLUDES(mutex_);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  const std::atomic<bool>& failed_flag() const { return failed_; }
  // Cancels what is under way.
  void fail(const Status& status) SENNIT_EXCLUDES(mutex_);
  // The same, decided here: the other ranks must not wait for this one.
  void fail_and_tell(const Status& status) SENNIT_EXCLUDES(mutex_);
  void abort() SENNIT_EXCLUDES(mutex_);
  // `world_ranks`: ascending, all the dead so far. Nothing happens where none of them is a member.
  void peers_failed(const std::vector<int>& world_ranks, const Status& status)
      SENNIT_EXCLUDES(mutex_);
  std::vector<int> failed_ranks() const SENNIT_EXCLUDES(mutex_);

  // The user's thread, for every collective call in turn: it begins, it is over.
  void call_begins(uint32_t seq, const std::shared_ptr<const Prepared>& prepared)
      SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    LoggedCall& call = calls_[seq % calls_.size()];
    call.seq = seq;
    if (call.prepared != prepared) call.prepared = prepared;
    call.finished.store(false, std::memory_order_relaxed);
  }
  // Only the user's thread writes calls_, so it may look without the lock.
  void call_is_over(uint32_t seq) SENNIT_NO_THREAD_SAFETY_ANALYSIS {
    LoggedCall& call = calls_[seq % calls_.size()];
    if (call.seq == seq) call.finished.store(true, std::memory_order_relaxed);
  }
  // The call of this number if it is still remembered; the latest where that has not come yet. Of
  // one that is forgotten: the number of the latest, and a text that says so. False: there was none.
  bool describe(uint32_t seq, CallDescriptor* out) const SENNIT_EXCLUDES(mutex_);

 private:
  struct LoggedCall {
    uint32_t seq = 0;
    std::shared_ptr<const Prepared> prepared;
    std::atomic<bool> finished = false;
  };
  static constexpr size_t kLoggedCalls = 64;

  const uint32_t id_;
  const std::vector<int> members_;
  const int rank_;
  Engine& engine_;
  Control& control_;
  std::atomic<bool> failed_{false};  // status_ is not ok
  mutable Mutex mutex_;
  Status status_ SENNIT_GUARDED_BY(mutex_);
  std::vector<int> failed_ranks_ SENNIT_GUARDED_BY(mutex_);
  std::array<LoggedCall, kLoggedCalls> calls_ SENNIT_GUARDED_BY(mutex_);  // ring by seq
};

}  // namespace sennit
