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
                       std::shared_ptr<HeldCommunicator> comm, Enqueued enqueued, uint64_t sequence)
    : c10d::Work(rank, type, title.c_str(), inputs),
      comm_(std::move(comm)),
      enqueued_(std::move(enqueued)),
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

bool DeviceWork::wait(Milliseconds) {
  enqueued_.end.block(cuda().getStream(enqueued_.stream.device()));
  std::vector<at::Tensor> over;
  {
    // Whoever frees the memory now does so in a stream that is behind the call.
    const std::scoped_lock lock(mutex_);
    over = std::exchange(enqueued_.memory, {});
  }
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  const std::scoped_lock lock(mutex_);
  if (future_) return future_;
  future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                               std::vector<c10::Device>{enqueued_.stream.device()});
  if (const std::exception_ptr error = exception()) {
    future_->setError(error);
  } else {
    const c10::StreamGuard in_its_stream(enqueued_.stream);
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

std::optional<Enqueued> DeviceCalls::enqueue(c10::Device device, TorchCall::Parts parts,
                                             const Start& start) {
  const std::scoped_lock lock(mutex_);
  if (in_batch_) {
    batch_.push_back({std::move(parts), start});
    return std::nullopt;
  }
  std::vector<Noted> alone;
  alone.push_back({std::move(parts), start});
  return enqueue_all(device, std::move(alone));
}

void DeviceCalls::begin_batch() {
  const std::scoped_lock lock(mutex_);
  TORCH_CHECK(!in_batch_, "sennit: a batch within a batch");
  in_batch_ = true;
}

std::optional<Enqueued> DeviceCalls::end_batch() {
  const std::scoped_lock lock(mutex_);
  in_batch_ = false;
  std::vector<Noted> batch = std::exchange(batch_, {});
  if (batch.empty()) return std::nullopt;
  const std::optional<c10::Device> device = device_of("a batch", batch[0].parts.memory);
  return enqueue_all(*device, std::move(batch));
}

// Called with the lock held. What the calls need of the caller's stream, they wait for in theirs,
// on the device.
Enqueued DeviceCalls::enqueue_all(c10::Device device, std::vector<Noted> calls) {
  const std::string& name = calls.front().parts.name;
  TORCH_CHECK(!stream_ || stream_->device() == device, "sennit: ", name, ": a tensor on ", device,
              "; this process's others of the group were on ", stream_->device(),
              "; a rank has one device");
  if (!stream_) stream_ = cuda().getStreamFromGlobalPool(device, false);
  end_of(cuda().getStream(device)).block(*stream_);
  const c10::StreamGuard in_its_stream(*stream_);
  const auto check = [&](sennit_status_t status) {
    if (status != SENNIT_OK) throw_error(name, sennit_last_error());
  };
  {
    const std::scoped_lock lock(comm_->calls);
    check(sennit_comm_set_stream(comm_->comm, stream_->native_handle()));
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
  return {*stream_, end_of(*stream_), std::move(memory), std::move(result)};
}

void DeviceCalls::await() {
  std::optional<c10::Stream> stream;
  {
    const std::scoped_lock lock(mutex_);
    stream = stream_;
  }
  if (!stream) return;
  cuda().synchronizeStream(*stream);
  cuda().synchronizeStream(cuda().getStream(stream->device()));
}

void DeviceCalls::settle(Time until) {
  constexpr Milliseconds kNap{1};
  const std::scoped_lock lock(mutex_);
  if (!stream_) return;
  while (!stream_->query()) {
    if (std::chrono::steady_clock::now() >= until) {
      sennit_comm_abort(comm_->comm);
      return;
    }
    std::this_thread::sleep_for(kNap);
  }
}

void DeviceCalls::settle_all(Time until) {
  const std::scoped_lock lock(all_calls().mutex);
  for (DeviceCalls* const calls : all_calls().of_groups) calls->settle(until);
}

}  // namespace sennit_torch
