// clock_filter.cpp: see control/tree/clock_filter.hpp.
#include "control/tree/clock_filter.hpp"

#include <algorithm>

#include "record/measured_clock.hpp"

namespace sennit::control {

bool ClockFilter::add(const ClockExchanged& exchanged) {
  const auto [asked, received, answered, arrived] = exchanged;
  if (arrived < asked || answered < received || arrived - asked < answered - received) return false;
  // The way there took at least nothing, so the other is ahead by `most` at the most; so did the
  // way back, and it is ahead by `least` at the least.
  const auto most = static_cast<int64_t>(received - asked);
  const auto least = static_cast<int64_t>(answered - arrived);
  const uint64_t width = static_cast<uint64_t>(most) - static_cast<uint64_t>(least);
  // Half of an odd number is rounded down here, and up there.
  const auto middle = static_cast<int64_t>(static_cast<uint64_t>(least) + width / 2);
  // The other stamped it at any time since it was asked, and has drifted from then on.
  kept_.push_back({{middle, width / 2 + width % 2}, asked});
  if (kept_.size() > kKept) kept_.pop_front();
  return true;
}

ClockDistance ClockFilter::Kept::at(uint64_t now_ns) const {
  return {distance.ahead_ns,
          distance.error_ns + clock_drift_ns(now_ns - std::min(now_ns, when_ns))};
}

std::optional<ClockDistance> ClockFilter::best(uint64_t now_ns) const {
  std::optional<ClockDistance> best;
  for (const Kept& kept : kept_)
    if (const ClockDistance one = kept.at(now_ns); !best || one.error_ns <= best->error_ns)
      best = one;
  return best;
}

}  // namespace sennit::control
