// device.hpp: a process group's calls on tensors of a CUDA device, each enqueued in a stream beside
// the caller's, and its Work, which orders streams and holds up no thread.
//
// Streams and events are those of c10, which knows a device by its type: no header of CUDA is
// needed, and one extension serves both kinds of memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "core/held.hpp"
#include "core/work.hpp"

namespace sennit_torch {

// The device of a call's tensors; none: they are in host memory. Throws where they are not all on
// one.
std::optional<c10::Device> device_of(const std::string& call,
                                     const std::vector<at::Tensor>& tensors);

// What was enqueued and may still be going on.
struct Enqueued {
  c10::Stream stream;
  c10::Stream callers;  // that was current when the call was made
  c10::Event end;       // the place in `stream` behind it
  std::vector<at::Tensor> memory;
  std::vector<at::Tensor> result;
};

// A call, or a batch of calls, on a device. To let go of it waits for nothing.
class DeviceWork : public c10d::Work {
 public:
  // title: of the profiler's event, which lasts until somebody waits.
  DeviceWork(int rank, c10d::OpType type, const std::string& title,
             const std::vector<at::Tensor>& inputs, std::shared_ptr<HeldCommunicator> comm,
             Enqueued enqueued, Milliseconds timeout, uint64_t sequence);
  ~DeviceWork() override;

  bool isCompleted() override { return enqueued_.end.query(); }
  bool isSuccess() const override { return enqueued_.end.query() && !exception(); }
  std::exception_ptr exception() const override;
  // As synchronize(). Where a time is given, and of a barrier, for as long as its own, the thread
  // waits first; when that is over the group is aborted, and this throws.
  bool wait(Milliseconds timeout) override;
  // What the caller's current stream does from now on follows the call.
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  void abort() override { sennit_comm_abort(comm_->comm); }
  std::vector<at::Tensor> result() override { return enqueued_.result; }
  // Has its value at once; who uses that is ordered behind the call by its stream.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const std::shared_ptr<HeldCommunicator> comm_;
  Enqueued enqueued_;
  const Milliseconds timeout_;  // 0: for ever
  const uint64_t sequence_;
  std::mutex mutex_;  // of the future, the memory, and the profiler's event
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A group's calls on tensors of a device, in one stream beside the callers'. Any thread.
class DeviceCalls {
 public:
  using Start = std::function<sennit_status_t(sennit_comm_t, sennit_work_t*)>;

  explicit DeviceCalls(std::shared_ptr<HeldCommunicator> comm);
  ~DeviceCalls();

  const std::shared_ptr<HeldCommunicator>& comm() const { return comm_; }
  // None before the first call.
  std::optional<c10::Device> device() const {
    return has_stream_ ? std::optional(stream_->device()) : std::nullopt;
  }
  // Enqueues a call on tensors of `device`, or notes it where this thread has a batch open: then
  // nothing is enqueued before its end, and there is no value.
  std::optional<Enqueued> enqueue(c10::Device device, TorchCall::Parts parts, const Start& start);
  // A batch is one call for the device, whose parts wait for no order among them. One that an
  // exception left open is forgotten.
  void begin_batch();
  bool in_batch() const { return batch_of_ == std::this_thread::get_id(); }
  std::optional<Enqueued> end_batch();  // none: it is empty
  // Until all that was enqueued here is over, and what the caller has in his stream; throws where
  // calls here have failed, or `until` comes first: then the group is aborted.
  void await(const std::string& call, Time until);
  // The same for the end of a group, which throws nothing: what fails is a warning.
  void settle(Time until) noexcept;
  static void settle_all(Time until) noexcept;  // of this process

 private:
  struct Noted {
    TorchCall::Parts parts;
    Start start;
  };
  const c10::Stream& stream_on(c10::Device device, const std::string& call);
  Enqueued enqueue_all(const c10::Stream& stream, std::vector<Noted> calls);

  bool over_by_then(Time until) const;

  const std::shared_ptr<HeldCommunicator> comm_;
  std::mutex mutex_;                   // held while something is enqueued
  std::optional<c10::Stream> stream_;  // since the first call; not changed then
  std::atomic<bool> has_stream_{false};
  std::atomic<std::thread::id> batch_of_{std::thread::id()};
  std::vector<Noted> batch_;  // of that thread alone
};

}  // namespace sennit_torch
