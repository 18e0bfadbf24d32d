// clock_exchange.cpp: see control/tree/clock_exchange.hpp.
#include "control/tree/clock_exchange.hpp"

#include "base/clock.hpp"

namespace sennit::control {

ClockExchange::ClockExchange(Self& self, const Census& census, const Tree& tree, Channels& channels,
                             Clock clock)
    : self_(self),
      census_(census),
      tree_(tree),
      channels_(channels),
      clock_(clock ? clock : now_ns) {}

void ClockExchange::tick() {
  if (self_.phase != Phase::running) return;
  Channel* const parent = tree_.parent();
  if (!parent || !parent->joined) {
    // The coordinator is what all others are measured by.
    if (census_.coordinator()) publish(MeasuredClock{.measured_ns = clock_(), .root = self_.rank});
    return;
  }
  if (parent->id != parent_) {
    parent_ = parent->id;
    filter_.clear();
    asked_ = 0;
    next_ms_ = self_.now_ms;
    publish(std::nullopt);
  }
  if (self_.now_ms >= next_ms_) {
    next_ms_ = self_.now_ms + (++asked_ < kFirst ? kFirstPeriodMs : kPeriodMs);
    waits_for_ns_ = clock_();
    channels_.send(*parent, encode(ClockAsk{waits_for_ns_}));
  }
  self_.due(next_ms_);
}

void ClockExchange::on_ask(Channel& channel, const ClockAsk& ask) {
  ClockAnswer answer{ask.asked_ns, clock_(), 0, -1, 0, 0};
  if (census_.coordinator()) {
    answer.root = self_.rank;
  } else if (const std::optional<MeasuredClock> mine = measured()) {
    answer.root = mine->root;
    answer.ahead_ns = mine->ahead_ns;
    answer.error_ns = mine->error_ns + clock_drift_ns(answer.received_ns - mine->measured_ns);
  }
  answer.answered_ns = clock_();
  channels_.send(channel, encode(answer));
}

void ClockExchange::on_answer(const Channel& channel, const ClockAnswer& answer) {
  const uint64_t now = clock_();
  if (channel.id != parent_ || answer.asked_ns != waits_for_ns_ || waits_for_ns_ == 0) return;
  waits_for_ns_ = 0;
  if (!filter_.add({answer.asked_ns, answer.received_ns, answer.answered_ns, now})) return;
  if (answer.root < 0) return publish(std::nullopt);  // the parent does not know it yet
  const ClockDistance parent = *filter_.best(now);
  MeasuredClock mine;
  mine.ahead_ns = static_cast<int64_t>(static_cast<uint64_t>(answer.ahead_ns) -
                                       static_cast<uint64_t>(parent.ahead_ns));
  mine.error_ns = answer.error_ns + parent.error_ns;
  mine.measured_ns = now;
  mine.root = answer.root;
  publish(mine);
}

std::optional<MeasuredClock> ClockExchange::measured() const {
  const MutexLock lock(mutex_);
  return measured_;
}

void ClockExchange::publish(const std::optional<MeasuredClock>& measured) {
  const MutexLock lock(mutex_);
  measured_ = measured;
}

}  // namespace sennit::control
