// watcher.hpp: sees to calls that nobody waits for, but whose Work has a future, or is gone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sennit_torch {

class TorchCall;
using Milliseconds = std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

// Runs functions one after the other. One that is held up for some milliseconds may wait for what a
// later one does, as a future's callback may for another future: then a further thread goes on.
class Callbacks {
 public:
  void add(std::function<void()> callback);
  // Until all have run, or the time is over.
  void settle(Time until);

 private:
  void run();
  bool busy() const;  // with one that is not held up

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> callbacks_;
  size_t threads_ = 0, running_ = 0;
  uint64_t latest_ = 0;          // number of the one that began last
  bool latest_running_ = false;  // which has not ended
  Time latest_began_;
};

// One of the process, for all its groups. A thread looks at all calls again and again, whatever
// their order: one that never completes holds up no other. It begins with the first call, as those
// of the callbacks do, and they end with the process.
class Watcher {
 public:
  using Then = std::function<void(TorchCall&)>;
  static Watcher& instance();

  // Keeps the call until it has completed or expired; runs what follows then, if there is any.
  void watch(std::shared_ptr<TorchCall> call, Then then);
  // From now on all calls of this process are looked at about once a second, since somebody wants
  // to be told that they have completed.
  void look_at_all();
  // At the interpreter's exit: until all calls have completed and what follows has run, or the time
  // is over.
  void settle(Time until);

 private:
  using Watched = std::pair<std::shared_ptr<TorchCall>, Then>;
  void look();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched> calls_;  // which the thread has not taken yet
  size_t out_ = 0;              // with those that it has
  bool looking_ = false;        // the thread has begun
  bool looking_at_all_ = false;
  std::mutex look_at_all_mutex_;
  bool settled_ = false;  // the interpreter ends: nothing lets go of its objects any more
  Callbacks callbacks_;
};

}  // namespace sennit_torch
