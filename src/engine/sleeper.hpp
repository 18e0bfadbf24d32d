// sleeper.hpp: how a thread that waits sleeps: until a transport has something to do, another
// thread wakes it, or its time is over.
//
// A wake that comes after a thread has looked for something to do in vain, and before it sleeps,
// must not be lost. So wakes are counted: the thread takes the count before it looks, and does not
// sleep where there was one since. And each has a descriptor of its own while it sleeps, so that no
// wake is left over for later sleeps, and none takes another's.
//
// Any thread may call anything here, without a lock. Cost: a system call or two.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.hpp"
#include "engine/routes.hpp"

namespace sennit {

class Sleeper {
 public:
  Sleeper();
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // How often wake() was called so far.
  uint64_t wakes() const { return wakes_; }
  // `found`: what Routes::prepare_wait() said, just now. `naps`: how often this thread has slept in
  // a row; where a transport cannot say that it has something, sleeps are short and grow with it.
  // `wakes`: the count from before this thread looked. No longer than `most_ns`.
  void sleep(const Routes::Descriptors& found, uint32_t naps, uint64_t wakes,
             int64_t most_ns = INT64_MAX) SENNIT_EXCLUDES(mutex_);
  // Ends the sleep of all.
  void wake() SENNIT_EXCLUDES(mutex_);

 private:
  bool lie_down(uint64_t wakes, int* bell) SENNIT_EXCLUDES(mutex_);
  void get_up(int bell, uint64_t wakes) SENNIT_EXCLUDES(mutex_);

  Mutex mutex_;
  std::atomic<uint64_t> wakes_{0};                     // changed under the lock
  std::vector<int> asleep_ SENNIT_GUARDED_BY(mutex_);  // the descriptors of those who sleep
  std::vector<int> idle_ SENNIT_GUARDED_BY(mutex_);    // for the next ones
};

}  // namespace sennit
