// clock.hpp: the kernel's clocks in nanoseconds, and one that the processor's counter carries on.
#pragma once

#include <cstdint>

namespace sennit {

// CLOCK_MONOTONIC, read anew each time. Any thread.
uint64_t now_ns();

// CLOCK_REALTIME, likewise: hosts agree on it as far as they are told the time.
uint64_t realtime_ns();

// CLOCK_MONOTONIC, carried on by the processor's counter for up to a millisecond at a time where
// that counts evenly. One user at a time. Right to a microsecond or so, so that the
// times of two ranks of a host may be held against one another.
class FastClock {
 public:
  FastClock();
  uint64_t now() {
    const uint64_t since = ticks() - base_.ticks;
    if (since < good_for_ticks_) return base_.ns + (since * ns_per_tick_shifted_ >> kShift);
    return read();
  }

 private:
  static constexpr int kShift = 24;
  static uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
  }
  // Both clocks at one time, which may be off by `width` of the counter.
  struct Reading {
    uint64_t ns = 0, ticks = 0, width = 0;
  };
  static Reading read_both();
  uint64_t read();

  bool even_ = false;  // the counter counts evenly
  Reading anchor_;     // the counter's rate is learned from here
  Reading base_;       // time is counted from here
  uint64_t ns_per_tick_shifted_ = 0;
  uint64_t good_for_ticks_ = 0;
};

}  // namespace sennit
