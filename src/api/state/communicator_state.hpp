// communicator_state.hpp: what any thread may know of a communicator, and do to it: its members,
// whether it has failed and why, and its latest calls, which ranks compare when something stalls.
//
// fail() and what calls it take the engine's lock, and the control plane's; call them without.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "api/call/call_log.hpp"
#include "api/call/plan_switches.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "control/control_plane.hpp"
#include "engine/engine.hpp"

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
  int rank_of(int world_rank) const;  // in the communicator, whose member it is
  std::vector<int> others() const;    // the world ranks of all members but this rank

  // Ok, or what the communicator failed with: the first failure stands.
  Status status() const SENNIT_EXCLUDES(mutex_);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  const std::atomic<bool>& failed_flag() const { return failed_; }
  // Cancels what is under way. False: it had failed before. Whoever calls it sees to it that the
  // other members know as well.
  bool fail(const Status& status) SENNIT_EXCLUDES(mutex_);
  // The same, decided here: the other ranks must not wait for this one.
  void fail_and_tell(const Status& status) SENNIT_EXCLUDES(mutex_);
  void abort() SENNIT_EXCLUDES(mutex_);
  // `world_ranks`: ascending, all the dead so far. Nothing happens where none of them is a member.
  void peers_failed(const std::vector<int>& world_ranks, const Status& status)
      SENNIT_EXCLUDES(mutex_);
  std::vector<int> failed_ranks() const SENNIT_EXCLUDES(mutex_);

  // All members have made their last call.
  void set_over() { over_ = true; }
  bool over() const { return over_; }

  CallLog& calls() { return calls_; }
  const CallLog& calls() const { return calls_; }
  PlanSwitches& switches() { return switches_; }
  const PlanSwitches& switches() const { return switches_; }
  // Of that log, for the control plane.
  bool describe(uint32_t seq, CallDescriptor* out) const;

 private:
  const uint32_t id_;
  const std::vector<int> members_;
  const int rank_;
  Engine& engine_;
  Control& control_;
  std::atomic<bool> failed_{false};  // status_ is not ok
  std::atomic<bool> over_{false};
  mutable Mutex mutex_;
  Status status_ SENNIT_GUARDED_BY(mutex_);
  std::vector<int> failed_ranks_ SENNIT_GUARDED_BY(mutex_);
  CallLog calls_;
  PlanSwitches switches_{calls_};
};

}  // namespace sennit
