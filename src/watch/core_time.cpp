// core_time.cpp: see watch/core_time.hpp.
#include "watch/core_time.hpp"

#include <algorithm>

namespace sennit::watch {

std::optional<Pause> CoreTime::slept(uint64_t begin_ns, uint64_t asked_ns, uint64_t end_ns) {
  constexpr auto kLateNs = static_cast<uint64_t>(std::chrono::nanoseconds(kLate).count());
  if (end_ns < asked_ns + kLateNs) return std::nullopt;
  // It may have stopped running at any time since it fell asleep: in the mean, half way.
  const uint64_t from_ns = begin_ns + (asked_ns - std::min(begin_ns, asked_ns)) / 2;
  paused_ns_ += end_ns - from_ns;
  return Pause{from_ns, end_ns};
}

}  // namespace sennit::watch
