// background.hpp: work that may wait, on a thread of its own that lets all others go first. Where
// cores are busy it would else take them from calls, and what looks at why calls are slow would
// make them slow itself.
#pragma once

#include <deque>
#include <functional>
#include <memory>
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
  explicit Background(const char* name) : name_(name), queue_(std::make_shared<Queue>()) {}
  ~Background() { end(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Is done after those that were given before. Where there can be no thread it never is, which is
  // logged.
  void post(Task task);
  // A task that is under way is waited for. Those that wait are not done, nor is what comes later.
  // In a forked child it does nothing: the thread is the parent's.
  void end();

 private:
  // What both threads use; a forked child leaves it as it is.
  struct Queue {
    Mutex mutex;
    Condition wake;
    std::deque<Task> tasks SENNIT_GUARDED_BY(mutex);
    bool started SENNIT_GUARDED_BY(mutex) = false, ending SENNIT_GUARDED_BY(mutex) = false;
  };
  void start() SENNIT_REQUIRES(queue_->mutex);
  void run();

  const Origin origin_{};
  const char* const name_;
  const std::shared_ptr<Queue> queue_;
  std::thread thread_;  // made under the lock, joined by end()
};

}  // namespace sennit
