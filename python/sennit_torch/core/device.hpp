// device.hpp: a process group's calls on tensors of a CUDA device, each enqueued in a stream beside
// the caller's, and its Work, which orders streams and holds up no thread.
//
// Streams and events are those of c10, which knows a device by its type: no header of CUDA is
// needed, and one extension serves both kinds of memory.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "core/held.hpp"
#include "core/work.hpp"

namespace sennit_torch {

// The CUDA device of a call's tensors; none: they are in host memory. Throws where they are not all
// on one device, or on one that this backend has nothing for.
std::optional<c10::Device> device_of(const std::string& call,
                                     const std::vector<at::Tensor>& tensors);

// What was enqueued and may still be going on: the place in the stream behind it, and its memory.
struct Enqueued {
  c10::Stream stream;
  c10::Event end;
  std::vector<at::Tensor> memory;
  std::vector<at::Tensor> result;
};

// A call, or a batch of calls, on a device. To let go of it waits for nothing.
class DeviceWork : public c10d::Work {
 public:
  // title: of the profiler's event, which lasts until somebody waits.
  DeviceWork(int rank, c10d::OpType type, const std::string& title,
             const std::vector<at::Tensor>& inputs, std::shared_ptr<HeldCommunicator> comm,
             Enqueued enqueued, uint64_t sequence);
  ~DeviceWork() override;

  bool isCompleted() override { return enqueued_.end.query(); }
  bool isSuccess() const override { return enqueued_.end.query() && !exception(); }
  std::exception_ptr exception() const override;
  // What the caller's current stream does from now on follows the call. The time-out is the
  // group's: a stream that has not come to the call is never late.
  bool wait(Milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { sennit_comm_abort(comm_->comm); }
  std::vector<at::Tensor> result() override { return enqueued_.result; }
  // Has its value at once; who uses that is ordered behind the call by its stream.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const std::shared_ptr<HeldCommunicator> comm_;
  Enqueued enqueued_;
  const uint64_t sequence_;
  std::mutex mutex_;  // of the future, and of the memory
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A group's calls on tensors of a device, in one stream beside the callers'. Any thread.
class DeviceCalls {
 public:
  using Start = std::function<sennit_status_t(sennit_comm_t, sennit_work_t*)>;

  explicit DeviceCalls(std::shared_ptr<HeldCommunicator> comm);
  ~DeviceCalls();

  const std::shared_ptr<HeldCommunicator>& comm() const { return comm_; }
  // Enqueues a call on tensors of `device`, or notes it where a batch is open: then nothing is
  // enqueued before its end, and there is no value.
  std::optional<Enqueued> enqueue(c10::Device device, TorchCall::Parts parts, const Start& start);
  // A batch is one call for the device, whose parts wait for no order among them.
  void begin_batch();
  bool in_batch() const { return in_batch_; }
  std::optional<Enqueued> end_batch();  // none: it is empty
  // Until all that was enqueued here is over, and what the caller has in his stream.
  void await();
  // Until all that was enqueued here is over, but no longer than until then: the communicator is
  // aborted then, so that the stream goes on.
  void settle(Time until);
  static void settle_all(Time until);  // of this process

 private:
  struct Noted {
    TorchCall::Parts parts;
    Start start;
  };
  Enqueued enqueue_all(c10::Device device, std::vector<Noted> calls);

  const std::shared_ptr<HeldCommunicator> comm_;
  std::mutex mutex_;
  std::optional<c10::Stream> stream_;  // since the first call
  std::atomic<bool> in_batch_{false};
  std::vector<Noted> batch_;
};

}  // namespace sennit_torch
