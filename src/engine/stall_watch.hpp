// stall_watch.hpp: notices executions that nothing has moved of for long.
//
// Not thread-safe. Cost: a comparison, and twenty times a second one look at each execution.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sennit {

class StallWatch {
 public:
  // `stall_ns`: so long without progress, and again after as long, is a stall (SENNIT_STALL).
  explicit StallWatch(uint64_t stall_ns) : stall_ns_(stall_ns) {}

  // Calls stalled(execution) for each of `running` that stalls, and counts in its `stalled_ns` how
  // long it has; true if there was one. Watched is Execution, but for tests.
  template <typename Watched, typename Stalled>
  bool look(const std::vector<Watched*>& running, uint64_t now_ns, Stalled stalled) {
    if (now_ns - last_look_ns_ < kLookNs) return false;
    last_look_ns_ = now_ns;
    bool any = false;
    for (Watched* execution : running) {
      const uint64_t since = std::max(execution->last_progress_ns, execution->last_report_ns);
      if (now_ns - since < stall_ns_) continue;
      // A process that did not run has not waited: no more than two periods count at a time.
      const bool again = execution->last_report_ns > execution->last_progress_ns;
      const uint64_t before = again ? execution->stalled_ns : 0;
      // Who waits in slices may be between two of them: nothing is added then, and nothing taken.
      execution->stalled_ns =
          before + (execution->is_awaited() ? std::min(now_ns - since, 2 * stall_ns_) : 0);
      execution->last_report_ns = now_ns;
      stalled(*execution);
      any = true;
    }
    return any;
  }

 private:
  static constexpr uint64_t kLookNs = 50'000'000;

  const uint64_t stall_ns_;
  uint64_t last_look_ns_ = 0;
};

}  // namespace sennit
