// trace.hpp: what happened when, per step and edge. Always on: a ring of fixed size per rank, the newest
// events win. Cost: one clock read and one 64-byte store per event (perf/components measures it).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace sennit {

struct alignas(64) TraceEvent {
  uint32_t comm = 0, seq = 0;
  uint32_t chunk = 0;
  uint32_t step = 0;
  int32_t peer = -1;  // world rank; -1: local (reduce, copy)
  uint8_t kind = 0;   // StepKind
  uint8_t tier = 0;
  uint16_t reserved = 0;
  uint32_t bytes = 0;      // saturates
  uint32_t ready_ns = 0;   // peer known ready, relative to posted_ns; saturates, as do the next two
  uint32_t first_ns = 0;   // first fragment
  uint32_t last_ns = 0;    // last fragment
  uint64_t posted_ns = 0;  // CLOCK_MONOTONIC
};
static_assert(sizeof(TraceEvent) == 64);

uint64_t now_ns();  // CLOCK_MONOTONIC

// One writer (under the engine's lock); snapshot() takes the same lock.
class Trace {
 public:
  explicit Trace(size_t events = 16384) : ring_(events) {}
  void record(const TraceEvent& event) { ring_[next_++ % ring_.size()] = event; }
  std::vector<TraceEvent> snapshot() const;  // oldest first
  uint64_t recorded() const { return next_; }

 private:
  std::vector<TraceEvent> ring_;
  uint64_t next_ = 0;
};

}  // namespace sennit
