// communicator.cpp: see nccl/communicator.hpp.
#include "nccl/communicator.hpp"

#include <atomic>
#include <utility>

#include "nccl/numbers.hpp"

// A handle that was given back is known by its magic for as long as its memory is not used again.
struct ncclComm {
  std::atomic<uint64_t> magic;
  std::shared_ptr<sennit::nccl::CommunicatorState> state;
};

namespace sennit::nccl {
namespace {
constexpr uint64_t kMagic = 0x73656e6e6974636dULL;  // "sennitcm"
}

CommunicatorState::~CommunicatorState() {
  if (comm_) sennit_comm_destroy(comm_);
}

sennit_comm_t CommunicatorState::comm() const {
  const MutexLock lock(mutex_);
  return comm_;
}

void CommunicatorState::made(sennit_comm_t comm) {
  const MutexLock lock(mutex_);
  comm_ = comm;
  if (given_up_) sennit_comm_abort(comm_);
}

void CommunicatorState::give_up() {
  const MutexLock lock(mutex_);
  given_up_ = true;
  if (comm_) sennit_comm_abort(comm_);
}

uint64_t CommunicatorState::take_turn() {
  const MutexLock lock(mutex_);
  return turns_taken_++;
}

void CommunicatorState::await_turn(uint64_t turn) {
  MutexLock lock(mutex_);
  while (turns_ended_ != turn) changed_.wait(lock);
}

void CommunicatorState::end_turn(const Outcome& outcome) {
  const MutexLock lock(mutex_);
  if (first_error_.ok()) first_error_ = outcome;
  turns_ended_++;
  changed_.notify_all();
}

void CommunicatorState::await_jobs() {
  MutexLock lock(mutex_);
  while (turns_ended_ != turns_taken_) changed_.wait(lock);
}

Outcome CommunicatorState::status() const {
  const MutexLock lock(mutex_);
  if (!first_error_.ok()) return first_error_;
  if (turns_ended_ != turns_taken_) return {ncclInProgress, "the communicator is still busy"};
  if (!comm_) return {};
  const sennit_status_t status = sennit_comm_get_async_error(comm_);
  if (status == SENNIT_OK) return {};
  return {result_of(status), sennit_last_error()};
}

std::shared_ptr<CommunicatorState> state_of(ncclComm_t handle, Outcome* why) {
  if (handle && handle->magic.load(std::memory_order_relaxed) == kMagic) return handle->state;
  *why = {ncclInvalidArgument, handle ? "the communicator was destroyed, or is none of sennit's"
                                      : "the communicator is NULL"};
  return nullptr;
}

ncclComm_t make_handle(std::shared_ptr<CommunicatorState> state) {
  return new ncclComm{kMagic, std::move(state)};
}

void free_handle(ncclComm_t handle) {
  handle->magic.store(0, std::memory_order_relaxed);
  delete handle;
}

}  // namespace sennit::nccl
