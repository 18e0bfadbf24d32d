// core_time.hpp: how long this process could not run.
//
// A thread that sleeps for a moment, again and again, and wakes much later than it asked to, finds
// that the whole process did not run: it was stopped, its cgroup had used up its share, or the
// machine itself was halted (as jHiccup finds it). That others take a core for a few milliseconds
// at a time is not seen, for who wakes goes first.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "record/pause.hpp"

namespace sennit::watch {

// One thread: the one that sleeps.
class CoreTime {
 public:
  // So long the thread sleeps at most, and who wakes later by so much was not let run.
  static constexpr std::chrono::milliseconds kSleep{10}, kLate{10};

  // It slept from begin_ns to end_ns, and wanted to be woken at asked_ns. The pause that this was.
  std::optional<Pause> slept(uint64_t begin_ns, uint64_t asked_ns, uint64_t end_ns);
  // How long the pauses since the last call were.
  uint64_t take_ns() { return std::exchange(paused_ns_, 0); }

 private:
  uint64_t paused_ns_ = 0;
};

}  // namespace sennit::watch
