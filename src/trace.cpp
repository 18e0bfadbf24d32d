#include "trace.hpp"

#include <ctime>

namespace sennit {

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(t.tv_nsec);
}

std::vector<TraceEvent> Trace::snapshot() const {
  std::vector<TraceEvent> events;
  const uint64_t held = next_ < ring_.size() ? next_ : ring_.size();
  events.reserve(held);
  for (uint64_t i = next_ - held; i < next_; i++) events.push_back(ring_[i % ring_.size()]);
  return events;
}

}  // namespace sennit
