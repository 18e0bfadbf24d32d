// communicator.hpp: what an ncclComm_t is: a communicator of sennit's, and how far it is.
//
// A blocking one is used on its user's thread. Of one with config.blocking = 0 every call becomes a
// job (nccl/group.hpp) of a thread of its own, in the order in which the calls were made; the
// handle may be given back before such a job is over, so its state belongs to both.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "nccl/abi.h"
#include "nccl/worker.hpp"
#include "sennit/sennit.h"

namespace sennit::nccl {

// What a result is and why. The text is for ncclGetLastError.
struct Outcome {
  ncclResult_t result = ncclSuccess;
  std::string text;

  bool ok() const { return result == ncclSuccess; }
};

using CudaContext = struct CUctx_st*;
// A CUDA device, and what calls of it are made in; no context: it is not known.
struct DeviceContext {
  CudaContext context = nullptr;
  int number = -1;  // -1: none
};

// What ncclRedOpCreatePreMulSum was given. Each call has a copy: the program may destroy the
// operation as soon as the call was made, although it runs later.
struct PremultipliedSum {
  sennit_type_t type;
  std::array<std::byte, 8> scalar = {};  // one element of the type, and room
  // Where it is not null the scalar is what lies here when a call runs: memory that a GPU reaches.
  const void* in_stream = nullptr;
};

// Memory that a program registered with a communicator, or made a window of.
struct Registration {
  void* memory;
  size_t bytes;
  bool window;
};

// Any thread.
class CommunicatorState {
 public:
  // `device`: which it is of, as NCCL has it: that which is current when it is made.
  CommunicatorState(bool blocking, const DeviceContext& device)
      : blocking_(blocking), device_(device) {}
  // Gives the communicator back where there is one.
  ~CommunicatorState();
  CommunicatorState(const CommunicatorState&) = delete;
  CommunicatorState& operator=(const CommunicatorState&) = delete;

  bool blocking() const { return blocking_; }
  const DeviceContext& device() const { return device_; }
  // Whether a call has gone into a stream, in which those that name none would go from then on.
  bool has_stream() const { return has_stream_.load(std::memory_order_relaxed); }
  void got_stream() { has_stream_.store(true, std::memory_order_relaxed); }

  // Null until it is made.
  sennit_comm_t comm() const SENNIT_EXCLUDES(mutex_);
  // It is made, and has failed since: all its ranks know.
  bool failed() const SENNIT_EXCLUDES(mutex_);
  // It is made. Where it has been given up in the meantime it is aborted at once.
  void made(sennit_comm_t comm) SENNIT_EXCLUDES(mutex_);
  // It will not be made, and why, unless it is already, or a job is to make it.
  void not_made(const Outcome& why) SENNIT_EXCLUDES(mutex_);
  // Aborts it, now or as soon as it is made, and so its other ranks wait for this one no longer. A
  // start ends without it. `why`: its error from now on, where it has none.
  void give_up(const Outcome& why = {}) SENNIT_EXCLUDES(mutex_);
  bool given_up() const SENNIT_EXCLUDES(mutex_);
  // A call on it, or what was to be made out of it, was not made. Where its arguments were off, who
  // waits for it in vain is told; any other error is no fault of the call's.
  void refuses(const Outcome& why) const SENNIT_EXCLUDES(mutex_);
  // Aborts what is under way on it. What that ends with is no error of the communicator's.
  sennit_status_t revoke() SENNIT_EXCLUDES(mutex_);
  bool revoked() const SENNIT_EXCLUDES(mutex_);
  // Waits for its jobs and gives it back. Nobody may use it afterwards.
  void destroy() SENNIT_EXCLUDES(mutex_);
  // Waits for its jobs; an error where it was not made by them.
  Outcome await_made() SENNIT_EXCLUDES(mutex_);

  // ---- jobs of one that does not block ----
  // Whose thread does them; made at the first use, which may throw std::system_error.
  Worker& worker() SENNIT_EXCLUDES(mutex_);
  // A job's turn among this communicator's.
  uint64_t take_turn() SENNIT_EXCLUDES(mutex_);
  void await_turn(uint64_t turn) SENNIT_EXCLUDES(mutex_);
  void end_turn(const Outcome& outcome) SENNIT_EXCLUDES(mutex_);
  // Until no job is left.
  void await_jobs() SENNIT_EXCLUDES(mutex_);

  // ncclInProgress while jobs are left; else what went wrong first, here or on another rank.
  Outcome status() const SENNIT_EXCLUDES(mutex_);

  // ---- what a program made on it; nothing where a number or a handle is none of its own ----
  // Numbers are such as no communicator of this process has given.
  ncclRedOp_t add_op(const PremultipliedSum& op) SENNIT_EXCLUDES(mutex_);
  std::optional<PremultipliedSum> find_op(ncclRedOp_t number) const SENNIT_EXCLUDES(mutex_);
  bool remove_op(ncclRedOp_t number) SENNIT_EXCLUDES(mutex_);
  // Handles are numbers that no communicator of this process gives twice.
  void* add_registration(const Registration& registration) SENNIT_EXCLUDES(mutex_);
  std::optional<Registration> find_registration(const void* handle) const SENNIT_EXCLUDES(mutex_);
  bool remove_registration(const void* handle, bool window) SENNIT_EXCLUDES(mutex_);

 private:
  const bool blocking_;
  const DeviceContext device_;
  std::atomic<bool> has_stream_{false};
  mutable Mutex mutex_;
  Condition changed_;
  sennit_comm_t comm_ SENNIT_GUARDED_BY(mutex_) = nullptr;
  bool given_up_ SENNIT_GUARDED_BY(mutex_) = false;
  bool revoked_ SENNIT_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Worker> worker_ SENNIT_GUARDED_BY(mutex_);
  uint64_t turns_taken_ SENNIT_GUARDED_BY(mutex_) = 0;
  uint64_t turns_ended_ SENNIT_GUARDED_BY(mutex_) = 0;
  Outcome first_error_ SENNIT_GUARDED_BY(mutex_);
  std::map<int, PremultipliedSum> ops_ SENNIT_GUARDED_BY(mutex_);
  std::map<const void*, Registration> registrations_ SENNIT_GUARDED_BY(mutex_);
};

// How many fork()s lie between the first process that had this library and this one. The child has
// none of its parent's threads, and locks that nobody may ever release.
uint32_t forks();

// The state behind a handle; null, with the reason in `why`, where it is none: also where it was
// given back, or was made before fork() in the parent.
std::shared_ptr<CommunicatorState> state_of(ncclComm_t handle, Outcome* why);
ncclComm_t make_handle(std::shared_ptr<CommunicatorState> state);
void free_handle(ncclComm_t handle);
// Whether it is the parent's of this process, which can only leave it alone.
bool inherited(ncclComm_t handle);

}  // namespace sennit::nccl
