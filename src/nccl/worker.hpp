// worker.hpp: a thread that does jobs one after the other, for calls that do not block.
#pragma once

#include <functional>
#include <memory>

namespace sennit::nccl {

// Any thread.
class Worker {
 public:
  // Starts the thread; std::system_error where the system has none left.
  Worker();
  // Does not wait: the thread ends when it has done what it was given, and may itself be the last
  // to hold what owns this.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The job is done after all that were added before it, and is destroyed by the thread.
  void add(std::function<void()> job);

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace sennit::nccl
