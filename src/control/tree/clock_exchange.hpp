// clock_exchange.hpp: how this rank's clock stands to the coordinator's: time stamps exchanged with
// its parent, and added to what the parent knows of itself, so that nobody has to reach far.
//
// Two small frames every five seconds, in place of heartbeats, and a few more at the start. Control
// thread only, but for measured().
#pragma once

#include <cstdint>
#include <optional>

#include "base/mutex.hpp"
#include "control/channels.hpp"
#include "control/messages.hpp"
#include "control/tree/census.hpp"
#include "control/tree/clock_filter.hpp"
#include "control/tree/tree.hpp"
#include "record/measured_clock.hpp"

namespace sennit::control {

class ClockExchange {
 public:
  using Clock = uint64_t (*)();  // CLOCK_MONOTONIC in ns; tests have others

  // Without `clock` it is the kernel's.
  ClockExchange(Self& self, const Census& census, const Tree& tree, Channels& channels,
                Clock clock = nullptr);

  // Asks the parent when it is time to.
  void tick();
  void on_ask(Channel& channel, const ClockAsk& ask);  // of a child
  void on_answer(const Channel& channel, const ClockAnswer& answer);

  // Nothing while it is not known: at the start, and for a moment where the parent is a new one.
  // Any thread.
  std::optional<MeasuredClock> measured() const SENNIT_EXCLUDES(mutex_);

 private:
  static constexpr int64_t kPeriodMs = 5000;
  // The first exchanges follow one another sooner, so that short jobs know something too.
  static constexpr int kFirst = 4;
  static constexpr int64_t kFirstPeriodMs = 100;

  void publish(const std::optional<MeasuredClock>& measured) SENNIT_EXCLUDES(mutex_);

  Self& self_;
  const Census& census_;
  const Tree& tree_;
  Channels& channels_;
  const Clock clock_;
  uint64_t parent_ = 0;  // channel that all below is about; 0: none
  int asked_ = 0;        // times
  int64_t next_ms_ = 0;
  uint64_t waits_for_ns_ = 0;  // the stamp of the question that is not answered yet; 0: none
  ClockFilter filter_;
  mutable Mutex mutex_;
  std::optional<MeasuredClock> measured_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit::control
