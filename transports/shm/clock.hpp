// clock.hpp: the time of one progress() call, read when it is first asked for: reading the clock
// for every message would take a tenth of a small one's latency.
#pragma once

#include <cstdint>

#include "base/clock.hpp"

namespace sennit::shm {

class Clock {
 public:
  uint64_t now() {
    if (ns_ == 0) ns_ = now_ns();
    return ns_;
  }
  void forget() { ns_ = 0; }  // a new call begins

 private:
  uint64_t ns_ = 0;
};

}  // namespace sennit::shm
