// background.hpp: work that may wait, on a thread of its own that lets all others go first. Where
// cores are busy it would else take them from calls, and what looks at why calls are slow would
// make them slow itself.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.hpp"
#include "base/process/forked.hpp"

namespace sennit {

// Any thread may call what is public, but for the destructor and end().
class Background {
 public:
  using Task = std::function<void()>;
  // How much nicer its thread is than the one that gave it the first task.
  static constexpr int kNicer = 10;

  // `name`: of its thread, at most 15 bytes; of static duration.
  explicit Background(const char* name) : name_(name) {}
  ~Background() { end(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Is done after those that were given before. Where there can be no thread it never is, which is
  // logged.
  void post(Task task) SENNIT_EXCLUDES(mutex_);
  // A task that is under way is waited for. Those that wait are not done, nor is what comes later.
  void end() SENNIT_EXCLUDES(mutex_);

 private:
  void start() SENNIT_REQUIRES(mutex_);
  void run() SENNIT_EXCLUDES(mutex_);

  const Origin origin_{};
  const char* const name_;
  Mutex mutex_;
  Condition wake_;
  std::deque<Task> tasks_ SENNIT_GUARDED_BY(mutex_);
  bool started_ SENNIT_GUARDED_BY(mutex_) = false, ending_ SENNIT_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // made under the lock, joined by end()
};

}  // namespace sennit
