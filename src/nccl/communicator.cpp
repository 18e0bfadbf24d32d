// communicator.cpp: see nccl/communicator.hpp.
#include "nccl/communicator.hpp"

#include <pthread.h>

#include <atomic>
#include <deque>
#include <utility>

#include "base/process/process_numbers.hpp"
#include "nccl/numbers.hpp"

// Never freed, so that a call on one that was given back is an error and no access to other memory.
struct ncclComm {
  uint64_t magic;
  uint32_t forks;
  sennit::Mutex mutex;
  std::shared_ptr<sennit::nccl::CommunicatorState> state SENNIT_GUARDED_BY(mutex);
};

namespace sennit::nccl {
namespace {

constexpr uint64_t kMagic = 0x73656e6e6974636dULL;  // "sennitcm"

struct Handles {
  Mutex mutex;
  std::deque<ncclComm> all SENNIT_GUARDED_BY(mutex);
};
Handles& handles() {
  static auto* const handles = new Handles;
  return *handles;
}

std::atomic<uint32_t> g_forks{0};
[[maybe_unused]] const int kRegistered =
    pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

CommunicatorState::~CommunicatorState() {
  if (comm_) sennit_comm_destroy(comm_);
}

sennit_comm_t CommunicatorState::comm() const {
  const MutexLock lock(mutex_);
  return comm_;
}

bool CommunicatorState::failed() const {
  const MutexLock lock(mutex_);
  return comm_ && sennit_comm_get_async_error(comm_) != SENNIT_OK;
}

void CommunicatorState::made(sennit_comm_t comm) {
  const MutexLock lock(mutex_);
  comm_ = comm;
  if (given_up_) sennit_comm_abort(comm_);
}

void CommunicatorState::not_made(const Outcome& why) {
  const MutexLock lock(mutex_);
  if (!comm_ && turns_taken_ == 0 && first_error_.ok()) first_error_ = why;
}

void CommunicatorState::give_up(const Outcome& why) {
  const MutexLock lock(mutex_);
  if (first_error_.ok()) first_error_ = why;
  given_up_ = true;
  if (comm_) sennit_comm_abort(comm_);
}

bool CommunicatorState::given_up() const {
  const MutexLock lock(mutex_);
  return given_up_;
}

void CommunicatorState::refuses(const Outcome& why) const {
  if (why.result != ncclInvalidArgument) return;
  const MutexLock lock(mutex_);
  if (comm_) sennit_comm_refuse(comm_, why.text.c_str());
}

sennit_status_t CommunicatorState::revoke() {
  const MutexLock lock(mutex_);
  revoked_ = true;
  first_error_ = {};
  return sennit_comm_abort(comm_);
}

bool CommunicatorState::revoked() const {
  const MutexLock lock(mutex_);
  return revoked_;
}

void CommunicatorState::destroy() {
  await_jobs();
  sennit_comm_t comm = nullptr;
  {
    const MutexLock lock(mutex_);
    std::swap(comm, comm_);
  }
  if (comm) sennit_comm_destroy(comm);
}

Outcome CommunicatorState::await_made() {
  MutexLock lock(mutex_);
  while (turns_ended_ != turns_taken_) changed_.wait(lock);
  if (comm_) return {};
  if (!first_error_.ok()) return first_error_;
  return {ncclInvalidArgument, "the communicator is still being made"};
}

Worker& CommunicatorState::worker() {
  const MutexLock lock(mutex_);
  if (!worker_) worker_ = std::make_unique<Worker>();
  return *worker_;
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
  if (first_error_.ok() && !revoked_) first_error_ = outcome;
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
  if (status == SENNIT_OK || (status == SENNIT_ABORTED && revoked_)) return {};
  return {result_of(status), sennit_last_error()};
}

ncclRedOp_t CommunicatorState::add_op(const PremultipliedSum& op) {
  static ProcessNumbers numbers(ncclNumOps, ncclMaxRedOp);
  const MutexLock lock(mutex_);
  return static_cast<ncclRedOp_t>(numbers.add(op, &ops_));
}

std::optional<PremultipliedSum> CommunicatorState::find_op(ncclRedOp_t number) const {
  const MutexLock lock(mutex_);
  const auto found = ops_.find(static_cast<int>(number));
  if (found == ops_.end()) return std::nullopt;
  return found->second;
}

bool CommunicatorState::remove_op(ncclRedOp_t number) {
  const MutexLock lock(mutex_);
  return ops_.erase(static_cast<int>(number)) > 0;
}

void* CommunicatorState::add_registration(const Registration& registration) {
  static std::atomic<uintptr_t> last{0};
  auto* const handle = reinterpret_cast<void*>(++last);
  const MutexLock lock(mutex_);
  registrations_[handle] = registration;
  return handle;
}

std::optional<Registration> CommunicatorState::find_registration(const void* handle) const {
  const MutexLock lock(mutex_);
  const auto found = registrations_.find(handle);
  if (found == registrations_.end()) return std::nullopt;
  return found->second;
}

bool CommunicatorState::remove_registration(const void* handle, bool window) {
  const MutexLock lock(mutex_);
  const auto found = registrations_.find(handle);
  if (found == registrations_.end() || found->second.window != window) return false;
  registrations_.erase(found);
  return true;
}

uint32_t forks() { return g_forks.load(std::memory_order_relaxed); }

std::shared_ptr<CommunicatorState> state_of(ncclComm_t handle, Outcome* why) {
  const auto none = [&](const char* text) {
    *why = {ncclInvalidArgument, text};
    return nullptr;
  };
  if (!handle) return none("the communicator is NULL");
  if (handle->magic != kMagic) return none("the communicator is none of sennit's");
  if (inherited(handle))
    return none("the communicator was made before fork(), in the parent: a child makes its own");
  const MutexLock lock(handle->mutex);
  if (!handle->state) return none("the communicator was destroyed or aborted before");
  return handle->state;
}

ncclComm_t make_handle(std::shared_ptr<CommunicatorState> state) {
  Handles& known = handles();
  const MutexLock lock(known.mutex);
  ncclComm& handle = known.all.emplace_back();
  handle.magic = kMagic;
  handle.forks = forks();
  const MutexLock of_handle(handle.mutex);
  handle.state = std::move(state);
  return &handle;
}

void free_handle(ncclComm_t handle) {
  std::shared_ptr<CommunicatorState> state;  // whose end may take long
  const MutexLock lock(handle->mutex);
  state.swap(handle->state);
}

bool inherited(ncclComm_t handle) { return handle->magic == kMagic && handle->forks != forks(); }

}  // namespace sennit::nccl
