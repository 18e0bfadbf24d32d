// work.cpp: calls that are out: waiting for them, with and without a future.
#include "core/work.hpp"

#include <algorithm>

#include <utility>

#include <c10/util/Exception.h>

namespace sennit_torch {

void throw_error(const std::string& call, const std::string& text) {
  C10_THROW_ERROR(DistBackendError, "sennit: " + call + ": " + text);
}

HeldCommunicator::~HeldCommunicator() {
  if (comm) sennit_comm_destroy(comm);
}

WholeJob& WholeJob::instance() {
  static auto* const whole_job = new WholeJob;
  return *whole_job;
}

void WholeJob::hold(const std::shared_ptr<HeldCommunicator>& comm) {
  const std::scoped_lock lock(mutex_);
  comm_ = comm;
}

std::shared_ptr<HeldCommunicator> WholeJob::held() {
  const std::scoped_lock lock(mutex_);
  return comm_.lock();
}

TorchCall::TorchCall(std::shared_ptr<HeldCommunicator> comm, Parts parts, const Start& start)
    : comm_(std::move(comm)), parts_(std::move(parts)) {
  const std::scoped_lock lock(comm_->calls);
  if (start(&work_) != SENNIT_OK) throw_error(parts_.name, sennit_last_error());
}

TorchCall::~TorchCall() { wait(Milliseconds(-1)); }

// Called with the lock held.
void TorchCall::end(sennit_status_t status) {
  try {
    if (status != SENNIT_OK) throw_error(parts_.name, sennit_last_error());
    if (parts_.receives) sennit_work_source(work_, &source_);
    if (parts_.after) parts_.after();
  } catch (...) {
    error_ = std::current_exception();
  }
  sennit_work_free(std::exchange(work_, nullptr));
  parts_.memory.clear();
  parts_.after = nullptr;
  ended_ = true;
}

// Whoever comes while another thread waits for the call, such as the watcher, waits for the lock,
// no longer than he wants to.
bool TorchCall::wait(Milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_, std::defer_lock);
  if (timeout.count() < 0)
    lock.lock();
  else if (!lock.try_lock_until(until))
    return ended_;
  if (ended_) return true;
  const auto left =
      std::chrono::duration_cast<Milliseconds>(until - std::chrono::steady_clock::now());
  const sennit_status_t status =
      sennit_work_wait(work_, timeout.count() < 0 ? -1 : std::max<int64_t>(left.count(), 0));
  if (status == SENNIT_IN_PROGRESS) return false;
  end(status);
  return true;
}

bool TorchCall::done() {
  if (ended_) return true;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;  // somebody waits for it
  if (ended_) return true;
  const sennit_status_t status = sennit_work_test(work_);
  if (status == SENNIT_IN_PROGRESS) return false;
  end(status);
  return true;
}

std::exception_ptr TorchCall::error() const { return ended_ ? error_ : nullptr; }
int TorchCall::source() const { return ended_ ? source_ : -1; }

void Watcher::watch(std::shared_ptr<TorchCall> call, Then then) {
  const std::scoped_lock lock(mutex_);
  calls_.emplace_back(std::move(call), std::move(then));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  more_.notify_one();
}

Watcher::~Watcher() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
    more_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Watcher::run() {
  for (;;) {
    std::vector<std::pair<std::shared_ptr<TorchCall>, Then>> calls;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return ending_ || !calls_.empty(); });
      if (calls_.empty()) return;
      calls.swap(calls_);
    }
    for (auto& [call, then] : calls) {  // mostly completed in the order in which they were started
      call->wait(Milliseconds(-1));
      if (then) then(*call);
      call.reset();
    }
  }
}

TorchWork::TorchWork(int rank, c10d::OpType type, const std::string& title,
                     std::shared_ptr<TorchCall> call, std::shared_ptr<Watcher> watcher,
                     uint64_t sequence)
    : c10d::Work(rank, type, title.c_str(), call->parts().inputs),
      call_(std::move(call)),
      watcher_(std::move(watcher)),
      sequence_(sequence) {}

// A call that nobody waits for still fills its memory.
TorchWork::~TorchWork() {
  if (call_.use_count() == 1 && !call_->done()) watcher_->watch(std::move(call_), nullptr);
}

void TorchWork::event_ends() {
  const std::scoped_lock lock(mutex_);
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

bool TorchWork::isCompleted() {
  const bool done = call_->done();
  if (done) event_ends();
  return done;
}
bool TorchWork::isSuccess() const { return call_->done() && !call_->error(); }
std::exception_ptr TorchWork::exception() const { return call_->error(); }

bool TorchWork::wait(Milliseconds timeout) {
  const Milliseconds limit = timeout == kNoTimeout ? call_->parts().timeout : timeout;
  if (!call_->wait(limit.count() > 0 ? limit : Milliseconds(-1)))
    throw_error(call_->parts().name,
                "Timed out after " + std::to_string(limit.count()) +
                    " ms: a rank that has not called it, or sits in another call, holds it up");
  event_ends();
  if (const std::exception_ptr error = call_->error()) std::rethrow_exception(error);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFuture() {
  const std::scoped_lock lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  watcher_->watch(call_, [future = future_](TorchCall& call) {
    if (const std::exception_ptr error = call.error())
      future->setError(error);
    else
      future->markCompleted(c10::IValue(call.parts().result));
  });
  return future_;
}

}  // namespace sennit_torch
