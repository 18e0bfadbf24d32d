// device.cpp: see python/sennit_torch/core/device.hpp.
#include "core/device.hpp"

#include <set>
#include <thread>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace sennit_torch {
namespace {

const c10::impl::VirtualGuardImpl& cuda() {
  static const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  return guard;
}

// The process's groups that have any. Never destroyed: groups may end at the very end.
struct AllCalls {
  std::mutex mutex;
  std::set<DeviceCalls*> of_groups;
};
AllCalls& all_calls() {
  static auto* const all = new AllCalls;
  return *all;
}

// Looks again and again whether it is over. False: it is not by then.
template <typename IsOver>
bool over_by(Time until, const IsOver& is_over) {
  constexpr auto kNap = std::chrono::microseconds(100);
  while (!is_over()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

// A place in a stream, behind all that is in it.
c10::Event end_of(const c10::Stream& stream) {
  c10::Event end(c10::DeviceType::CUDA);
  end.record(stream);
  return end;
}

}  // namespace

std::optional<c10::Device> device_of(const std::string& call,
                                     const std::vector<at::Tensor>& tensors) {
  std::optional<c10::Device> first;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!first) first = tensor.device();
    TORCH_CHECK(tensor.device() == *first, "sennit: ", call, ": tensors on ", *first, " and ",
                tensor.device(), "; those of a call are on one device");
  }
  if (!first || first->is_cpu()) return std::nullopt;
  return first;
}

// ---- the Work ----

DeviceWork::DeviceWork(int rank, c10d::OpType type, const std::string& title,
                       const std::vector<at::Tensor>& inputs,
                       std::shared_ptr<HeldCommunicator> comm, Enqueued enqueued,
                       Milliseconds timeout, uint64_t sequence)
    : c10d::Work(rank, type, title.c_str(), inputs),
      comm_(std::move(comm)),
      enqueued_(std::move(enqueued)),
      timeout_(timeout),
      sequence_(sequence) {}

// Where nobody has waited the memory goes to its allocator at once, which gives it to nobody else
// before the stream has come by.
DeviceWork::~DeviceWork() {
  for (const at::Tensor& tensor : enqueued_.memory)
    if (tensor.defined() && tensor.nbytes() > 0)
      cuda().recordDataPtrOnStream(tensor.storage().data_ptr(), enqueued_.stream);
}

std::exception_ptr DeviceWork::exception() const {
  if (sennit_comm_get_async_error(comm_->comm) == SENNIT_OK) return nullptr;
  try {
    throw_error("a call on a device", sennit_last_error());
  } catch (...) {
    return std::current_exception();
  }
}

bool DeviceWork::wait(Milliseconds timeout) {
  if (timeout.count() > 0 || retrieveOpType() == c10d::OpType::BARRIER) {
    const Milliseconds limit = timeout.count() > 0 ? timeout : timeout_;
    const Time until = limit.count() > 0 ? std::chrono::steady_clock::now() + limit : Time::max();
    if (!over_by(until, [&] { return enqueued_.end.query(); })) {
      abort();
      throw_error("a call on a device",
                  "Timed out after " + std::to_string(limit.count()) + " ms; the group is aborted");
    }
  }
  synchronize();
  return true;
}

void DeviceWork::synchronize() {
  const c10::Stream current = cuda().getStream(enqueued_.stream.device());
  enqueued_.end.block(current);
  std::vector<at::Tensor> over;
  {
    const std::scoped_lock lock(mutex_);
    // Memory that is made for the call is the caller's stream's: who frees it there now does so
    // behind the call. From elsewhere that is not known.
    if (current == enqueued_.callers) over = std::exchange(enqueued_.memory, {});
    if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  }
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  const std::scoped_lock lock(mutex_);
  if (future_) return future_;
  const c10::Device device = enqueued_.stream.device();
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{device});
  if (const std::exception_ptr error = exception()) {
    future_->setError(error);
  } else {
    // In a stream that is behind this call, and not behind those that were made since.
    const c10::Stream behind = cuda().getStreamFromGlobalPool(device, false);
    enqueued_.end.block(behind);
    const c10::StreamGuard in_it(behind);
    future_->markCompleted(c10::IValue(enqueued_.result));
  }
  return future_;
}

// ---- the calls ----

DeviceCalls::DeviceCalls(std::shared_ptr<HeldCommunicator> comm) : comm_(std::move(comm)) {
  const std::scoped_lock lock(all_calls().mutex);
  all_calls().of_groups.insert(this);
}

DeviceCalls::~DeviceCalls() {
  const std::scoped_lock lock(all_calls().mutex);
  all_calls().of_groups.erase(this);
}

// With the lock held.
const c10::Stream& DeviceCalls::stream_on(c10::Device device, const std::string& call) {
  TORCH_CHECK(!stream_ || stream_->device() == device, "sennit: ", call, ": a tensor on ", device,
              "; this process's others of the group were on ", stream_->device(),
              "; a rank has one device");
  if (!stream_) stream_ = cuda().getStreamFromGlobalPool(device, false);
  has_stream_ = true;
  return *stream_;
}

std::optional<Enqueued> DeviceCalls::enqueue(c10::Device device, TorchCall::Parts parts,
                                             const Start& start) {
  const std::scoped_lock lock(mutex_);
  const c10::Stream& stream = stream_on(device, parts.name);
  // What the call needs of the caller's stream, it waits for in its own.
  end_of(cuda().getStream(device)).block(stream);
  std::vector<Noted> alone;
  std::vector<Noted>& calls = in_batch() ? batch_ : alone;
  calls.push_back({std::move(parts), start});
  if (in_batch()) return std::nullopt;
  return enqueue_all(stream, std::move(alone));
}

void DeviceCalls::begin_batch() {
  batch_of_ = std::this_thread::get_id();
  batch_.clear();
}

std::optional<Enqueued> DeviceCalls::end_batch() {
  if (!in_batch()) return std::nullopt;
  std::vector<Noted> batch = std::exchange(batch_, {});
  batch_of_ = std::thread::id();
  if (batch.empty()) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  return enqueue_all(*stream_, std::move(batch));
}

// With the lock held.
Enqueued DeviceCalls::enqueue_all(const c10::Stream& stream, std::vector<Noted> calls) {
  const c10::Stream callers = cuda().getStream(stream.device());
  const c10::StreamGuard in_its_stream(stream);
  const auto check = [&](sennit_status_t status) {
    if (status != SENNIT_OK) throw_error(calls.front().parts.name, sennit_last_error());
  };
  {
    const std::scoped_lock lock(comm_->calls);
    check(sennit_comm_set_stream(comm_->comm, stream.native_handle()));
    if (calls.size() > 1) sennit_group_start();
    sennit_status_t status = SENNIT_OK;
    for (const Noted& call : calls)
      if (status == SENNIT_OK) status = call.start(comm_->comm, nullptr);
    // The end of a group in which a call was off says so again, and makes none.
    if (calls.size() > 1) status = sennit_group_end();
    check(status);
  }
  std::vector<at::Tensor> memory, result;
  for (Noted& call : calls) {
    if (call.parts.after) call.parts.after();
    for (const auto* const of : {&call.parts.memory, &call.parts.inputs})
      memory.insert(memory.end(), of->begin(), of->end());
    result.insert(result.end(), call.parts.result.begin(), call.parts.result.end());
  }
  memory.insert(memory.end(), result.begin(), result.end());
  return {stream, callers, end_of(stream), std::move(memory), std::move(result)};
}

// Graphs are launched in the caller's stream.
bool DeviceCalls::over_by_then(Time until) const {
  const c10::Stream callers = cuda().getStream(stream_->device());
  return over_by(until, [&] { return stream_->query(); }) &&
         over_by(until, [&] { return callers.query(); });
}

void DeviceCalls::await(const std::string& call, Time until) {
  if (!has_stream_) return;
  if (!over_by_then(until)) {
    sennit_comm_abort(comm_->comm);
    throw_error(call,
                "Timed out: what was enqueued on the device is not over; the group is aborted");
  }
  if (sennit_comm_get_async_error(comm_->comm) != SENNIT_OK) throw_error(call, sennit_last_error());
}

void DeviceCalls::settle(Time until) noexcept {
  if (!has_stream_) return;
  try {
    if (!over_by_then(until)) {
      TORCH_WARN("sennit: a process group ends while calls on a device are out: they are aborted");
      sennit_comm_abort(comm_->comm);
    } else if (sennit_comm_get_async_error(comm_->comm) != SENNIT_OK) {
      TORCH_WARN("sennit: calls on a device have failed: ", sennit_last_error());
    }
  } catch (const std::exception& error) {  // the device has failed, or is a parent process's
    TORCH_WARN("sennit: at the end of a process group: ", error.what());
    sennit_comm_abort(comm_->comm);
  }
}

void DeviceCalls::settle_all(Time until) noexcept {
  const std::scoped_lock lock(all_calls().mutex);
  for (DeviceCalls* const calls : all_calls().of_groups) calls->settle(until);
}

}  // namespace sennit_torch
