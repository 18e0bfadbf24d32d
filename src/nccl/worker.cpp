// worker.cpp: see nccl/worker.hpp.
#include "nccl/worker.hpp"

#include <deque>
#include <thread>
#include <utility>

#include "base/mutex.hpp"

namespace sennit::nccl {

struct Worker::Queue {
  Mutex mutex;
  Condition changed;
  std::deque<std::function<void()>> jobs SENNIT_GUARDED_BY(mutex);
  bool closed SENNIT_GUARDED_BY(mutex) = false;

  // Empty where the worker is gone and no job is left.
  std::function<void()> next() SENNIT_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    while (jobs.empty() && !closed) changed.wait(lock);
    if (jobs.empty()) return {};
    std::function<void()> job = std::move(jobs.front());
    jobs.pop_front();
    return job;
  }
};

Worker::Worker() : queue_(std::make_shared<Queue>()) {
  std::thread([queue = queue_] {
    while (const std::function<void()> job = queue->next()) job();
  }).detach();
}

Worker::~Worker() {
  const MutexLock lock(queue_->mutex);
  queue_->closed = true;
  queue_->changed.notify_all();
}

void Worker::add(std::function<void()> job) {
  const MutexLock lock(queue_->mutex);
  queue_->jobs.push_back(std::move(job));
  queue_->changed.notify_all();
}

}  // namespace sennit::nccl
