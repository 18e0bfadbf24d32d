// work.cpp: calls that are out: waiting for them, with and without a future.
#include "core/work.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>

namespace sennit_torch {
namespace {

constexpr Milliseconds kMoment{100};  // longer than the watcher waits for one call

// The process's calls that are out. Never destroyed: threads may end calls until the very end.
struct CallsOut {
  std::mutex mutex;
  std::set<TorchCall*> calls;
};
CallsOut& calls_out() {
  static auto* const out = new CallsOut;
  return *out;
}

uint64_t next_key() {
  static std::atomic<uint64_t> keys{0};
  return keys++;
}

// The call is over.
void fulfil(c10::ivalue::Future& future, const TorchCall& call) {
  if (const std::exception_ptr error = call.error())
    future.setError(error);
  else
    future.markCompleted(c10::IValue(call.parts().result));
}

}  // namespace

void throw_error(const std::string& call, const std::string& text) {
  C10_THROW_ERROR(DistBackendError, "sennit: " + call + ": " + text);
}

HeldCommunicator::~HeldCommunicator() { sennit_comm_destroy(comm); }

WholeJob& WholeJob::instance() {
  static auto* const whole_job = new WholeJob;
  return *whole_job;
}

void WholeJob::hold(const std::shared_ptr<HeldCommunicator>& comm, const std::string& name) {
  const std::scoped_lock lock(mutex_);
  comm_ = comm;
  name_ = name;
}

std::string WholeJob::name() {
  const std::scoped_lock lock(mutex_);
  return name_;
}

std::shared_ptr<HeldCommunicator> WholeJob::held() {
  const std::scoped_lock lock(mutex_);
  return comm_.lock();
}

TorchCall::TorchCall(std::shared_ptr<HeldCommunicator> comm, Parts parts, const Start& start)
    : comm_(std::move(comm)), key_(next_key()), parts_(std::move(parts)) {
  // Any thread may end the call: what is left to do is done in the state of the one that made it,
  // as in its inference mode.
  if (parts_.after)
    parts_.after = [after = std::move(parts_.after), state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard of_the_caller(state);
      after();
    };
  const std::scoped_lock lock(comm_->calls);
  if (start(&work_) != SENNIT_OK) throw_error(parts_.name, sennit_last_error());
}

void TorchCall::is_out() {
  const std::scoped_lock lock(calls_out().mutex);
  calls_out().calls.insert(this);
}

// The watcher keeps calls until they are over: hardly one comes here that is not.
TorchCall::~TorchCall() {
  if (!wait(kPatience)) {
    abort();
    wait(Milliseconds(-1));
  }
}

// Called with the lock held.
void TorchCall::end(sennit_status_t status) {
  try {
    if (status == SENNIT_TIMED_OUT) {  // in the words that PyTorch's users look for
      const auto time =
          std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - started_);
      throw_error(parts_.name, "Timed out after " + std::to_string(time.count()) +
                                   " ms: " + sennit_last_error());
    }
    if (status != SENNIT_OK) throw_error(parts_.name, sennit_last_error());
    if (parts_.receives) sennit_work_source(work_, &source_);
    if (parts_.after) parts_.after();
  } catch (...) {
    error_ = std::current_exception();
  }
  sennit_work_free(std::exchange(work_, nullptr));
  parts_.memory.clear();
  parts_.after = nullptr;
  ended_at_ = std::chrono::steady_clock::now();
  ended_ = true;
  {
    const std::scoped_lock lock(calls_out().mutex);
    calls_out().calls.erase(this);
  }
  if (!error_) comm_->completions.tell(key_);
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

void TorchCall::complete(Milliseconds timeout) {
  const Milliseconds limit = timeout.count() > 0 ? timeout : parts_.timeout;
  if (wait(limit.count() > 0 ? limit : Milliseconds(-1))) return;
  std::unique_lock lock(mutex_, kMoment);
  if (!lock) {  // another thread waits, and for longer
    abort();
    lock.lock();
  }
  if (!ended_) expire();
}

// Called with the lock held. The call has the caller's memory and cannot be taken back, so its
// communicator fails, with the names of the ranks that are late.
void TorchCall::expire() {
  const auto waited =
      std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - started_);
  sennit_work_expire(work_, waited.count());
  sennit_status_t status = sennit_work_wait(work_, kPatience.count());
  if (status == SENNIT_IN_PROGRESS) {  // nobody answers any more
    abort();
    status = sennit_work_wait(work_, -1);
  }
  end(status);
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

bool TorchCall::is_over() {
  if (done()) return true;
  const Milliseconds limit = parts_.timeout;
  if (limit.count() <= 0 || std::chrono::steady_clock::now() < started_ + limit) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;  // who waits for it lets it expire
  if (!ended_) expire();
  return true;
}

std::exception_ptr TorchCall::error() const { return ended_ ? error_ : nullptr; }
int TorchCall::source() const { return ended_ ? source_ : -1; }

std::vector<std::shared_ptr<TorchCall>> TorchCall::out(const HeldCommunicator* of) {
  std::vector<std::shared_ptr<TorchCall>> calls;
  const std::scoped_lock lock(calls_out().mutex);
  for (TorchCall* const out : calls_out().calls)
    if (std::shared_ptr<TorchCall> call = out->weak_from_this().lock();
        call && (!of || call->comm_.get() == of))
      calls.push_back(std::move(call));
  return calls;
}

void TorchCall::look_at_all() {
  for (const auto& call : out(nullptr)) call->done();
}

void TorchCall::settle(const HeldCommunicator* of, Time until) {
  const auto left = [&] {
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(
                                         until - std::chrono::steady_clock::now()));
  };
  for (const auto& call : out(of))
    if (!call->wait(left())) call->abort();
}

TorchWork::TorchWork(int rank, c10d::OpType type, const std::string& title,
                     std::shared_ptr<TorchCall> call, uint64_t sequence)
    : c10d::Work(rank, type, title.c_str(), call->parts().inputs),
      call_(std::move(call)),
      sequence_(sequence) {}

// A call that nobody waits for still fills its memory.
TorchWork::~TorchWork() {
  if (!future_ && !call_->done()) Watcher::instance().watch(std::move(call_), nullptr);
}

void TorchWork::event_ends() {
  const std::scoped_lock lock(mutex_);
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

bool TorchWork::isCompleted() {
  const bool done = call_->is_over();
  if (done) event_ends();
  return done;
}
bool TorchWork::isSuccess() const { return call_->done() && !call_->error(); }
std::exception_ptr TorchWork::exception() const { return call_->error(); }

bool TorchWork::wait(Milliseconds timeout) {
  call_->complete(timeout);
  event_ends();
  if (const std::exception_ptr error = call_->error()) std::rethrow_exception(error);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFuture() {
  const std::scoped_lock lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  // Who has waited for the call finds its value there.
  if (call_->ended())
    fulfil(*future_, *call_);
  else
    Watcher::instance().watch(call_,
                              [future = future_](TorchCall& call) { fulfil(*future, call); });
  return future_;
}

float TorchWork::getDuration() const {
  TORCH_CHECK(call_->done(), "sennit: ", call_->parts().name, " has not completed yet");
  return call_->duration().count();
}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& w) { return w->isCompleted(); });
}
bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& w) { return w->isSuccess(); });
}
bool CoalescedWork::wait(Milliseconds timeout) {
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_)
    if (const std::exception_ptr error = work->exception()) return error;
  return nullptr;
}
void CoalescedWork::blockCurrentStream() {
  for (const auto& work : works_) work->blockCurrentStream();
}
void CoalescedWork::abort() {
  for (const auto& work : works_) work->abort();
}
std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    const std::vector<at::Tensor> its = work->result();
    all.insert(all.end(), its.begin(), its.end());
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  const auto type = c10::ListType::create(c10::TensorType::get());
  if (works_.empty()) {
    auto none = c10::make_intrusive<c10::ivalue::Future>(type);
    none->markCompleted(c10::IValue(std::vector<at::Tensor>{}));
    return none;
  }
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(type));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures)->then(
      [values = result()](c10::ivalue::Future& all) {
        if (all.hasError()) std::rethrow_exception(all.exception_ptr());
        return c10::IValue(values);
      },
      type);
}

}  // namespace sennit_torch
