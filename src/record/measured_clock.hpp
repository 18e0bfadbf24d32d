// measured_clock.hpp: how far a rank's clock is from that of the job's first rank, as the control
// plane measures it (control/tree/clock_exchange.hpp), and how it lies in a recording's header.
#pragma once

#include <cstdint>

#include "base/arithmetic.hpp"

namespace sennit {

// By how much the clock of one host may run faster than another's, parts of a million: RFC 5905's
// frequency tolerance. An offset that was measured some time ago is good to as much less.
inline constexpr uint64_t kClockDriftPpm = 15;
constexpr uint64_t clock_drift_ns(uint64_t age_ns) {
  constexpr uint64_t kMillion = 1'000'000;
  return scaled(age_ns, kClockDriftPpm, kMillion);
}

// What this rank's CLOCK_MONOTONIC is ahead of that of rank `root`, and how far that may be off.
struct MeasuredClock {
  int64_t ahead_ns = 0;
  uint64_t error_ns = 0;     // at measured_ns; later it is clock_drift_ns() more
  uint64_t measured_ns = 0;  // by this rank's clock; 0: it is not known
  int32_t root = -1;         // the coordinator
  uint32_t reserved = 0;
  // Of all the rest. What is read while it is written does not fit it.
  uint64_t check = 0;

  bool known() const { return measured_ns != 0 && check == expected_check(); }
  uint64_t expected_check() const {
    uint64_t hash = mix(static_cast<uint64_t>(ahead_ns), error_ns);
    hash = mix(hash, measured_ns);
    return mix(hash, static_cast<uint32_t>(root));
  }
};

}  // namespace sennit
