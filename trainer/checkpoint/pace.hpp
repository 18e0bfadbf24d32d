// pace.hpp: a save's writing spread over time, so that the steps meanwhile hardly feel it.
//
// On 2 cores a save that is written as fast as the disk takes it makes the step behind it 10%
// longer; the same work a little at a time lies in the gaps between operations. After each piece
// the writer sleeps 19 times as long as the piece took of a core, so it takes a twentieth of one,
// but never so long that it would be late for its deadline; and not at all once someone waits for
// it.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/mutex.hpp"

namespace sennit::trainer {

// One writer's pace. Its thread calls begin() before the first piece and wrote() after each, and
// alone asks how long it paused.
class Pace {
 public:
  // The writer, on its thread. seconds: to be done in; 0: at once, without a pause.
  void begin(double seconds, uint64_t bytes);
  void wrote(uint64_t bytes);  // of all, so far: sleeps
  double paused_seconds() const { return paused_s_; }
  bool spread() const { return seconds_ > 0; }
  // Any thread, at any time: ends the pause that is under way, and there are no more until reset().
  void hurry();
  void reset();  // while no writer runs

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_ = 0, paused_s_ = 0;
  uint64_t bytes_ = 0;
  Clock::time_point began_;
  double core_s_ = 0;  // of the writer's, until the last pause
  Mutex mutex_;
  Condition hurried_;
  bool hurry_ SENNIT_GUARDED_BY(mutex_) = false;
};

// The calling thread gets a core when nobody else wants it.
void yield_to_others();

}  // namespace sennit::trainer
