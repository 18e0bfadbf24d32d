// pause.hpp: a stretch of time in which a rank's process did not run, because it was stopped, or
// its cores were taken from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sennit {

// By CLOCK_MONOTONIC of the rank's host.
struct Pause {
  uint64_t begin_ns = 0, end_ns = 0;
  bool operator==(const Pause&) const = default;
};

// How much of a time lies in the pauses, which do not overlap.
inline uint64_t paused_ns(const std::vector<Pause>& pauses, uint64_t from_ns, uint64_t to_ns) {
  uint64_t sum = 0;
  for (const Pause& pause : pauses) {
    const uint64_t begin = std::max(pause.begin_ns, from_ns), end = std::min(pause.end_ns, to_ns);
    if (begin < end) sum += end - begin;
  }
  return sum;
}

}  // namespace sennit
