// work_between.hpp: how much of the cores a rank's process asks for while it is in no call. A rank
// that comes late computes, or waits for something else: its input, a lock, a device.
//
// Nothing is measured at a call. A thread that wakes every few milliseconds reads the process's
// time, and what lies between two looks counts where the rank was in no call all the while; so
// little is known of pauses between calls that are shorter than two looks. Where cores are busy a
// process has less time than it asks for: where its first thread was ready to run at both looks it
// asked for a core all the time between them, whoever had that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace sennit::watch {

// One thread.
class WorkBetween {
 public:
  // At now_ns, of any clock that goes on, the process had had cpu_ns of processor time, and its
  // first thread was ready to run, or waited.
  void look(uint64_t now_ns, uint64_t cpu_ns, bool ready);
  // By the same clock, the process was in no call for so long. Ascending, apart.
  void in_none(uint64_t begin_ns, uint64_t end_ns);
  // Cores that it asked for then, lately: what was before the last call of this counts for less.
  // Nothing where too little is known.
  std::optional<double> cores();

 private:
  struct Look {
    uint64_t at_ns = 0, cpu_ns = 0;
    bool ready = false;
  };
  static constexpr size_t kMostLooks = 4096;  // calls that are farther apart say less

  std::deque<Look> looks_;  // that no stretch has passed yet
  double in_none_ns_ = 0, asked_ns_ = 0;
};

}  // namespace sennit::watch
