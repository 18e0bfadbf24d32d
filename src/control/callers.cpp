// callers.cpp: see control/callers.hpp.
#include "control/callers.hpp"

#include <utility>

#include <fmt/core.h>

namespace sennit::control {

bool Callers::post(std::function<void()> command) {
  const MutexLock lock(mutex_);
  if (ended_) return false;
  commands_.push_back(std::move(command));
  return true;
}

bool Callers::await_start(const Interruption& interruption) {
  bool interrupted = false;
  MutexLock lock(mutex_);
  while (!started_ && !interrupted) {
    changed_.wait_until(lock, interruption.next());
    lock.unlock();
    interrupted = interruption.wanted();
    lock.lock();
  }
  return started_.has_value();
}

Status Callers::wait_for_start() {
  MutexLock lock(mutex_);
  while (!started_) changed_.wait(lock);
  return *started_;
}

Result<Callers::Blobs> Callers::wait_for_result(uint32_t number, const std::string& what,
                                                int64_t limit_ms,
                                                const Interruption& interruption) {
  const auto end = Interruption::Clock::now() + std::chrono::milliseconds(limit_ms);
  bool interrupted = false;
  MutexLock lock(mutex_);
  while (!results_.count(number) && failure_.ok() && !ended_ && !interrupted &&
         Interruption::Clock::now() < end) {
    changed_.wait_until(lock, interruption.next(end));
    lock.unlock();
    interrupted = interruption.wanted();
    lock.lock();
  }
  if (auto node = results_.extract(number)) return std::move(node.mapped());
  if (!failure_.ok()) return failure_;
  if (interrupted) return Interruption::status().with_context(what);
  if (ended_) return Status{SENNIT_ABORTED, what + ": this rank has left the job"};
  return Status{SENNIT_TIMED_OUT,
                fmt::format("{}: nothing came from rank 0 within {} ms", what, limit_ms)};
}

Status Callers::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

void Callers::wait_for_end(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  MutexLock lock(mutex_);
  while (!ended_)
    if (changed_.wait_until(lock, end) == std::cv_status::timeout) return;
}

std::vector<std::function<void()>> Callers::take_commands() {
  const MutexLock lock(mutex_);
  return std::exchange(commands_, {});
}

void Callers::start_over(const Status& status) {
  const MutexLock lock(mutex_);
  started_ = status;
  changed_.notify_all();
}

void Callers::finish(uint32_t number, Result<Blobs> result) {
  const MutexLock lock(mutex_);
  results_.insert_or_assign(number, std::move(result));
  changed_.notify_all();
}

void Callers::fail(const Status& status) {
  const MutexLock lock(mutex_);
  failure_ = status;
  changed_.notify_all();
}

void Callers::fail_if_well(const Status& status) {
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
  changed_.notify_all();
}

void Callers::end() {
  const MutexLock lock(mutex_);
  ended_ = true;
  if (!started_)
    started_ = Status{SENNIT_INTERNAL, "the control thread ended before the start was complete"};
  changed_.notify_all();
}

}  // namespace sennit::control
