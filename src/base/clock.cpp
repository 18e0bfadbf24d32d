// clock.cpp: see base/clock.hpp.
#include "base/clock.hpp"

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

// Reads the real clock, and learns the counter's rate from the time since it was last read.
uint64_t FastClock::read() {
  // ns; the rate is learned over no other
  constexpr uint64_t kShortest = 20'000, kLongest = 1'000'000'000;
  const uint64_t ns = now_ns();
  if (!even_) return ns;
  const uint64_t ticks_now = ticks();
  const uint64_t ns_passed = ns - base_ns_, ticks_passed = ticks_now - base_ticks_;
  if (base_ns_ != 0 && ns_passed < kShortest) return ns;
  const bool learn = base_ns_ != 0 && ns_passed < kLongest && ticks_passed > 0;
  if (learn) {
    ns_per_tick_shifted_ = (ns_passed << kShift) / ticks_passed;
    good_for_ticks_ =
        ns_per_tick_shifted_ == 0 ? 0 : (uint64_t{1'000'000} << kShift) / ns_per_tick_shifted_;
  }
  base_ns_ = ns;
  base_ticks_ = ticks_now;
  return ns;
}

}  // namespace sennit
