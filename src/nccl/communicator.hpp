// communicator.hpp: what an ncclComm_t is: a communicator of sennit's, and how far it is.
//
// A blocking one is used on its user's thread. Of one with config.blocking = 0 every call becomes a
// job (nccl/group.hpp) on a thread of its own, in the order in which the calls were made; the
// handle may be given back before such a job is over, so its state belongs to both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "nccl/abi.h"
#include "sennit/sennit.h"

namespace sennit::nccl {

// What a result is and why. The text is for ncclGetLastError.
struct Outcome {
  ncclResult_t result = ncclSuccess;
  std::string text;

  bool ok() const { return result == ncclSuccess; }
};

// Any thread.
class CommunicatorState {
 public:
  explicit CommunicatorState(bool blocking) : blocking_(blocking) {}
  // Gives the communicator back where there is one.
  ~CommunicatorState();
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;

  bool blocking() const { return blocking_; }

  // Null until it is made.
  sennit_comm_t comm() const SENNIT_EXCLUDES(mutex_);
  // It is made. Where it has been given up in the meantime it is aborted at once.
  void made(sennit_comm_t comm) SENNIT_EXCLUDES(mutex_);
  // Aborts it, now or as soon as it is made.
  void give_up() SENNIT_EXCLUDES(mutex_);

  // ---- jobs of one that does not block ----
  // A job's turn among this communicator's.
  uint64_t take_turn() SENNIT_EXCLUDES(mutex_);
  void await_turn(uint64_t turn) SENNIT_EXCLUDES(mutex_);
  void end_turn(const Outcome& outcome) SENNIT_EXCLUDES(mutex_);
  // Until no job is left.
  void await_jobs() SENNIT_EXCLUDES(mutex_);

  // ncclInProgress while jobs are left; else what went wrong first, here or on another rank.
  Outcome status() const SENNIT_EXCLUDES(mutex_);

 private:
  const bool blocking_;
  mutable Mutex mutex_;
  Condition changed_;
  sennit_comm_t comm_ SENNIT_GUARDED_BY(mutex_) = nullptr;
  bool given_up_ SENNIT_GUARDED_BY(mutex_) = false;
  uint64_t turns_taken_ SENNIT_GUARDED_BY(mutex_) = 0;
  uint64_t turns_ended_ SENNIT_GUARDED_BY(mutex_) = 0;
  Outcome first_error_ SENNIT_GUARDED_BY(mutex_);
};

// The state behind a handle; null, with the reason in `why`, where it is none.
std::shared_ptr<CommunicatorState> state_of(ncclComm_t handle, Outcome* why);
ncclComm_t make_handle(std::shared_ptr<CommunicatorState> state);
void free_handle(ncclComm_t handle);

}  // namespace sennit::nccl
