// callers.hpp: between the threads that call the control plane and the control thread: commands go
// in, and what callers wait for comes out. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "base/process/interruption.hpp"
#include "base/status.hpp"
#include "control/messages.hpp"

namespace sennit::control {

class Callers {
 public:
  using Blobs = std::vector<Blob>;

  // ---- callers ----
  // For the control thread to do. False: that has ended, and nobody will.
  bool post(std::function<void()> command) SENNIT_EXCLUDES(mutex_);
  // Until the start is over; false where the caller wanted it no more before that.
  bool await_start(const Interruption& interruption) SENNIT_EXCLUDES(mutex_);
  // Until the start is over, which has a time limit of its own.
  Status wait_for_start() SENNIT_EXCLUDES(mutex_);
  // What came of small collective `number`; also an error when the job fails, when this rank has
  // left, when the caller wants it no more, or when nothing has come after `limit_ms`. `what`
  // begins the text of these.
  Result<Blobs> wait_for_result(uint32_t number, const std::string& what, int64_t limit_ms,
                                const Interruption& interruption = {}) SENNIT_EXCLUDES(mutex_);
  // The last failure of the job that was told; ok: none.
  Status failure() const SENNIT_EXCLUDES(mutex_);
  // Until the control thread has ended, or the time is up.
  void wait_for_end(std::chrono::milliseconds limit) SENNIT_EXCLUDES(mutex_);

  // ---- the control thread ----
  std::vector<std::function<void()>> take_commands() SENNIT_EXCLUDES(mutex_);
  // The start stands, or has failed.
  void start_over(const Status& status) SENNIT_EXCLUDES(mutex_);
  void finish(uint32_t number, Result<Blobs> result) SENNIT_EXCLUDES(mutex_);
  // Ranks died: whoever waits is told, and whoever comes to wait.
  void fail(const Status& status) SENNIT_EXCLUDES(mutex_);
  // Ends the waiting of those who were not told of another failure: frames may be lost.
  void fail_if_well(const Status& status) SENNIT_EXCLUDES(mutex_);
  void end() SENNIT_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<std::function<void()>> commands_ SENNIT_GUARDED_BY(mutex_);
  std::optional<Status> started_ SENNIT_GUARDED_BY(mutex_);
  std::map<uint32_t, Result<Blobs>> results_ SENNIT_GUARDED_BY(mutex_);
  Status failure_ SENNIT_GUARDED_BY(mutex_);
  bool ended_ SENNIT_GUARDED_BY(mutex_) = false;
};

}  // namespace sennit::control
