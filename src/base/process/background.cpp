// background.cpp: see base/process/background.hpp.
#include "base/process/background.hpp"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <csignal>
#include <system_error>
#include <utility>

#include "base/log.hpp"

namespace sennit {

void Background::post(Task task) {
  const MutexLock lock(mutex_);
  if (ending_) return;
  if (!started_) start();
  if (!thread_.joinable()) return;
  tasks_.push_back(std::move(task));
  wake_.notify_one();
}

void Background::start() {
  started_ = true;
  sigset_t all, before;  // signals are for the threads of the user
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log(LogLevel::warn, "there can be no thread '{}': {}", name_, error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Background::end() {
  if (origin_.forked()) {  // the thread is the parent's
    if (thread_.joinable()) thread_.detach();
    return;
  }
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    tasks_.clear();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::run() {
  prctl(PR_SET_NAME, name_);
  // On Linux that is the niceness of this thread alone, and may always grow.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNicer);
  MutexLock lock(mutex_);
  while (!ending_) {
    if (tasks_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace sennit
