// work.hpp: a call of sennit's as PyTorch's Work: what is waited for, or has a future.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "core/held.hpp"
#include "core/watcher.hpp"
#include "sennit/sennit.h"

namespace sennit_torch {

// How long an exit, and the end of a process group, wait for calls that are out.
constexpr Milliseconds kPatience{1000};

// sennit's error as PyTorch's: torch.distributed.DistBackendError, with the library's text.
[[noreturn]] void throw_error(const std::string& call, const std::string& text);

// A call that is out: its memory, and what is left to do when it has completed. Any thread.
class TorchCall : public std::enable_shared_from_this<TorchCall> {
 public:
  struct Parts {
    std::string name;                // "allreduce"
    std::vector<at::Tensor> memory;  // which must stay until it has completed
    std::vector<at::Tensor> inputs;  // as the caller gave them, for the profiler
    std::function<void()> after;     // copies the result to where it was asked for
    std::vector<at::Tensor> result;  // of the future
    Milliseconds timeout{0};         // 0: for ever
    bool receives = false;           // one message: its source is kept
  };
  using Start = std::function<sennit_status_t(sennit_work_t*)>;

  // Throws where it could not be started.
  TorchCall(std::shared_ptr<HeldCommunicator> comm, Parts parts, const Start& start);
  ~TorchCall();
  TorchCall(const TorchCall&) = delete;
  TorchCall& operator=(const TorchCall&) = delete;

  // It is among the calls that settle() waits for; called once, by who made it and before others
  // have it.
  void is_out();
  // False: it has not completed by then. Negative: for ever.
  bool wait(Milliseconds timeout);
  // Until it is done: where the time is over (0: the call's own), it expires.
  void complete(Milliseconds timeout);
  bool done();
  bool ended() const { return ended_; }  // somebody has seen that it is done
  uint64_t key() const { return key_; }  // no other call of this process has it
  // Whether it is done; it expires where its own time is over.
  bool is_over();
  void abort() { sennit_comm_abort(comm_->comm); }
  std::exception_ptr error() const;  // of one that is done
  int source() const;  // of a receive that has completed: the rank whose message came; else -1
  // Of one that is done, as far as somebody looked.
  std::chrono::duration<float, std::milli> duration() const { return ended_at_ - started_; }
  const Parts& parts() const { return parts_; }

  // Waits until then for all calls of a communicator, or of this process (null). Those that are
  // still out fail with their communicators, which are aborted.
  static void settle(const HeldCommunicator* of, Time until);
  // Looks which of this process have completed, where nobody waits for them.
  static void look_at_all();

 private:
  // Those that are out, of a communicator or of this process (null).
  static std::vector<std::shared_ptr<TorchCall>> out(const HeldCommunicator* of);
  void expire();
  void end(sennit_status_t status);

  const std::shared_ptr<HeldCommunicator> comm_;
  const uint64_t key_;
  Parts parts_;
  const Time started_ = std::chrono::steady_clock::now();
  std::timed_mutex mutex_;  // held while somebody waits
  sennit_work_t work_ = nullptr;
  // Not written any more once it has ended.
  std::exception_ptr error_;
  int source_ = -1;
  Time ended_at_;
  std::atomic<bool> ended_{false};
};

// What a collective of the process group returns. To let go of it waits for nothing: the call fills
// its memory nevertheless, and the watcher keeps it until then.
class TorchWork : public c10d::Work {
 public:
  // title: of the profiler's event, which lasts until the call has completed.
  TorchWork(int rank, c10d::OpType type, const std::string& title, std::shared_ptr<TorchCall> call,
            uint64_t sequence);
  ~TorchWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(Milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { call_->abort(); }  // the whole communicator: a call cannot be taken back
  std::vector<at::Tensor> result() override { return call_->parts().result; }
  int sourceRank() const override { return call_->source(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return sequence_; }
  Milliseconds getTimeout() const override { return call_->parts().timeout; }
#ifdef SENNIT_TORCH_HAS_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override { return call_->key(); }
#endif

 private:
  void event_ends();

  std::shared_ptr<TorchCall> call_;
  uint64_t sequence_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Several works as one: their results lie one after the other.
class CoalescedWork : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(Milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void blockCurrentStream() override;
  void abort() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace sennit_torch
