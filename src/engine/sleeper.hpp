// sleeper.hpp: how a thread that waits sleeps: until a transport has something to do, another
// thread wakes it, or its time is over.
//
// Any thread may call anything here, without a lock. Cost: a system call or two.
#pragma once

#include <cstdint>

#include "engine/routes.hpp"

namespace sennit {

class Sleeper {
 public:
  Sleeper();
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // `found`: what Routes::prepare_wait() said, just now. `naps`: how often this thread has slept in
  // a row; where a transport cannot say that it has something, sleeps are short and grow with it.
  void sleep(const Routes::Descriptors& found, uint32_t naps) const;
  // Ends the sleep of up to so many; what is left over ends later sleeps at once.
  void wake(uint64_t sleepers) const;

 private:
  const int fd_;
};

}  // namespace sennit
