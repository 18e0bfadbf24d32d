// clock_filter.hpp: how far two clocks are apart, by exchanges of time stamps between their owners.
// As in NTP (RFC 5905) that one of the latest exchanges counts whose time there and back bounds it
// best.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace sennit::control {

// NTP's four time stamps, in ns: the first and the last by the asker's clock, those between by the
// other's.
struct ClockExchanged {
  uint64_t asked_ns = 0, received_ns = 0, answered_ns = 0, arrived_ns = 0;
};

// What the other's clock is ahead of the asker's. However unlike the two ways are, the truth is
// within the error, as long as neither clock runs faster than the other by more than
// kClockDriftPpm (record/measured_clock.hpp).
struct ClockDistance {
  int64_t ahead_ns = 0;
  uint64_t error_ns = 0;
};

// The latest exchanges with one other clock. One thread at a time.
class ClockFilter {
 public:
  static constexpr size_t kKept = 8;  // as many as NTP's

  // False, and nothing happens: an end is before its begin.
  bool add(const ClockExchanged& exchanged);
  // By the asker's clock now; nothing before the first exchange.
  std::optional<ClockDistance> best(uint64_t now_ns) const;
  void clear() { kept_.clear(); }

 private:
  struct Kept {
    ClockDistance distance;
    uint64_t when_ns = 0;
    ClockDistance at(uint64_t now_ns) const;
  };
  std::deque<Kept> kept_;
};

}  // namespace sennit::control
