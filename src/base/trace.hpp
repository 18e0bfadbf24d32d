// trace.hpp: what happened when, per step and edge. Always on: a ring of fixed size per rank, the
// newest events win. Cost: one clock read and one 64-byte store per event (perf/components measures
// it).
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

namespace sennit {

// A step that has ended: of which call, between whom and when. `ready_ns`, `first_ns` and `last_ns`
// count from `posted_ns`, and saturate at about four seconds.
struct alignas(64) TraceEvent {
  uint32_t comm = 0, seq = 0;
  uint32_t chunk = 0;
  uint32_t step = 0;
  int32_t peer = -1;  // world rank; -1: local (reduce, copy)
  uint8_t kind = 0;   // StepKind
  uint8_t tier = 0;
  uint16_t reserved = 0;
  uint32_t bytes = 0;      // saturates
  uint32_t ready_ns = 0;   // peer known ready
  uint32_t first_ns = 0;   // first fragment
  uint32_t last_ns = 0;    // last fragment
  uint64_t posted_ns = 0;  // CLOCK_MONOTONIC
};
static_assert(sizeof(TraceEvent) == 64);

// CLOCK_MONOTONIC, read anew each time. Any thread.
uint64_t now_ns();

// CLOCK_MONOTONIC, carried on by the processor's counter for up to a millisecond at a time where
// that counts evenly. One user at a time.
class FastClock {
 public:
  FastClock();
  uint64_t now() {
    const uint64_t since = ticks() - base_ticks_;
    if (since < good_for_ticks_) return base_ns_ + (since * ns_per_tick_shifted_ >> kShift);
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
  uint64_t read();

  bool even_ = false;  // the counter counts evenly
  uint64_t base_ns_ = 0, base_ticks_ = 0;
  uint64_t ns_per_tick_shifted_ = 0;
  uint64_t good_for_ticks_ = 0;
};

// One writer (under the engine's lock); snapshot() takes the same lock.
class Trace {
 public:
  explicit Trace(size_t events = 16384) : ring_(std::bit_ceil(events)), mask_(ring_.size() - 1) {}
  void record(const TraceEvent& event) { ring_[next_++ & mask_] = event; }
  uint64_t now() { return clock_.now(); }    // under the same lock
  std::vector<TraceEvent> snapshot() const;  // oldest first
  uint64_t recorded() const { return next_; }

 private:
  std::vector<TraceEvent> ring_;  // a power of two
  const size_t mask_;
  FastClock clock_;
  uint64_t next_ = 0;
};

}  // namespace sennit
