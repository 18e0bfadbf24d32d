// interruption.hpp: whether who made a call that may wait for minutes does not want it any more.
// The thread that waits asks a few times a second, as it may be the only one that can tell: Python
// handles signals in its main thread alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "base/status.hpp"

namespace sennit {

// Copies are one and the same. One thread at a time, without a lock that others may wait for.
class Interruption {
 public:
  using Clock = std::chrono::steady_clock;

  Interruption() = default;  // never
  explicit Interruption(std::function<bool()> ask)
      : state_(std::make_shared<State>(State{std::move(ask)})) {}

  // Once it is so it stays so, and nobody is asked again.
  bool wanted() const {
    if (!state_) return false;
    if (!state_->wanted && state_->ask) state_->wanted = state_->ask();
    return state_->wanted;
  }
  // The call is over: who asked for it may be gone.
  void end() const {
    if (state_) state_->ask = nullptr;
  }
  // When who waits from now on, and not for longer than `end`, is to ask.
  Clock::time_point next(Clock::time_point end = Clock::time_point::max()) const {
    constexpr std::chrono::milliseconds kAskEvery(50);
    constexpr std::chrono::hours kLongest(1);  // of one wait
    return std::min(end, Clock::now() + (state_ ? kAskEvery : kLongest));
  }
  // For so long, or until it is wanted.
  void sleep(std::chrono::milliseconds time) const {
    const Clock::time_point end = Clock::now() + time;
    while (!wanted() && Clock::now() < end) std::this_thread::sleep_until(next(end));
  }
  // What the call then ends with.
  static Status status() { return {SENNIT_ABORTED, "the start was aborted on this rank"}; }

 private:
  struct State {
    std::function<bool()> ask;
    bool wanted = false;
  };
  std::shared_ptr<State> state_;
};

}  // namespace sennit
