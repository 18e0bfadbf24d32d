// background.cpp: see base/process/background.hpp.
#include "base/process/background.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/process/signals_blocked.hpp"

namespace sennit {

void Background::post(Task task) {
  const MutexLock lock(queue_->mutex);
  if (queue_->ending) return;
  if (!queue_->started) start();
  if (!thread_.joinable()) return;
  queue_->tasks.push_back(std::move(task));
  queue_->wake.notify_one();
}

void Background::start() {
  queue_->started = true;
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log(LogLevel::warn, "there can be no thread '{}': {}", name_, error.what());
  }
}

void Background::end() {
  if (origin_.forked()) {
    // The parent's thread may wait in it, and who destroys it would wait for that one.
    leave_to_parent(queue_);
    leave_to_parent(std::make_shared<std::thread>(std::move(thread_)));
    return;
  }
  {
    const MutexLock lock(queue_->mutex);
    queue_->ending = true;
    queue_->tasks.clear();
  }
  queue_->wake.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::run() {
  prctl(PR_SET_NAME, name_);
  // On Linux that is the niceness of this thread alone, and may always grow.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNicer);
  MutexLock lock(queue_->mutex);
  while (!queue_->ending) {
    if (queue_->tasks.empty()) {
      queue_->wake.wait(lock);
      continue;
    }
    const Task task = std::move(queue_->tasks.front());
    queue_->tasks.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace sennit
