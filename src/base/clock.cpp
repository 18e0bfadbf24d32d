// clock.cpp: see base/clock.hpp.
#include "base/clock.hpp"

#include <algorithm>
#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sennit {

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(t.tv_nsec);
}

uint64_t realtime_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(t.tv_nsec);
}

FastClock::FastClock() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  even_ = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);  // invariant TSC
#endif
}

// The narrower of two tries: a process that loses its core between the two clocks would read
// them at different times.
FastClock::Reading FastClock::read_both() {
  constexpr int kTries = 2;
  Reading best;
  for (int i = 0; i < kTries; i++) {
    const uint64_t before = ticks(), ns = now_ns(), width = ticks() - before;
    if (i == 0 || width < best.width) best = {ns, before + width / 2, width};
  }
  return best;
}

// Reads the real clock, and learns the counter's rate from the time since the anchor. The counter
// carries on for no longer than it was watched, so an error of that rate adds no more than what the
// two readings were off by.
uint64_t FastClock::read() {
  if (!even_) return now_ns();
  constexpr uint64_t kShortest = 20'000, kLongest = 1'000'000'000;  // ns, to learn the rate over
  constexpr uint64_t kGoodFor = 1'000'000, kWidest = 1'000;         // ns
  if (anchor_.ns != 0 && now_ns() - anchor_.ns < kShortest) return now_ns();
  const Reading reading = read_both();
  const uint64_t ns_passed = reading.ns - anchor_.ns, ticks_passed = reading.ticks - anchor_.ticks;
  good_for_ticks_ = 0;
  if (anchor_.ns == 0 || ns_passed > 2 * kLongest || ticks_passed == 0) {
    anchor_ = reading;
    return reading.ns;
  }
  ns_per_tick_shifted_ = (ns_passed << kShift) / ticks_passed;
  const uint64_t width_ns = (anchor_.width + reading.width) * ns_per_tick_shifted_ >> kShift;
  if (ns_per_tick_shifted_ == 0 || width_ns > kWidest) {
    if (anchor_.width > reading.width) anchor_ = reading;
    return reading.ns;
  }
  base_ = reading;
  good_for_ticks_ = (std::min(kGoodFor, ns_passed) << kShift) / ns_per_tick_shifted_;
  if (ns_passed > kLongest) anchor_ = reading;
  return reading.ns;
}

}  // namespace sennit
