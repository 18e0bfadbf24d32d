// work.hpp: a call of sennit's as PyTorch's Work: what is waited for, or has a future.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "core/held.hpp"
#include "sennit/sennit.h"

namespace sennit_torch {

using Milliseconds = std::chrono::milliseconds;

// sennit's error as PyTorch's: torch.distributed.DistBackendError, with the library's text.
[[noreturn]] void throw_error(const std::string& call, const std::string& text);

// A call that is out: its memory, and what is left to do when it has completed.
class TorchCall {
 public:
  struct Parts {
    std::string name;                // "allreduce"
    std::vector<at::Tensor> memory;  // which must stay until it has completed
    std::vector<at::Tensor> inputs;  // as the caller gave them, for the profiler
    std::function<void()> after;     // copies the result to where it was asked for
    std::vector<at::Tensor> result;  // of the future
    Milliseconds timeout{0};         // where wait() is given none; 0: for ever
    bool receives = false;           // one message: its source is kept
  };
  using Start = std::function<sennit_status_t(sennit_work_t*)>;

  // Throws where it could not be started.
  TorchCall(std::shared_ptr<HeldCommunicator> comm, Parts parts, const Start& start);
  ~TorchCall();
  TorchCall(const TorchCall&) = delete;
  TorchCall& operator=(const TorchCall&) = delete;

  // False: not by then. Any thread; an error is in error().
  bool wait(Milliseconds timeout);  // negative: for ever
  bool done();
  std::exception_ptr error() const;
  int source() const;  // of a receive that has completed: the rank whose message came; else -1
  const Parts& parts() const { return parts_; }

 private:
  void end(sennit_status_t status);

  std::shared_ptr<HeldCommunicator> comm_;
  Parts parts_;
  std::timed_mutex mutex_;  // held while somebody waits
  sennit_work_t work_ = nullptr;
  std::exception_ptr error_;  // like source_, not written any more once it has ended
  int source_ = -1;
  std::atomic<bool> ended_{false};
};

// Waits for calls whose Work has a future, or is gone, in a thread of its own that begins with the
// first of them.
class Watcher {
 public:
  using Then = std::function<void(TorchCall&)>;
  ~Watcher();
  void watch(std::shared_ptr<TorchCall> call, Then then);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::pair<std::shared_ptr<TorchCall>, Then>> calls_;
  bool ending_ = false;
  std::thread thread_;
};

// What a collective of the process group returns. To let go of it waits for nothing: the call fills
// its memory nevertheless, and the watcher keeps it until then.
class TorchWork : public c10d::Work {
 public:
  // title: of the profiler's event, which lasts until the call has completed.
  TorchWork(int rank, c10d::OpType type, const std::string& title, std::shared_ptr<TorchCall> call,
            std::shared_ptr<Watcher> watcher, uint64_t sequence);
  ~TorchWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(Milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  std::vector<at::Tensor> result() override { return call_->parts().result; }
  int sourceRank() const override { return call_->source(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void event_ends();

  std::shared_ptr<TorchCall> call_;
  std::shared_ptr<Watcher> watcher_;
  uint64_t sequence_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace sennit_torch
