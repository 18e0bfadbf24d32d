// plan_switches.hpp: from which call on a communicator plans by what is known of the fabric by
// then.
//
// All ranks must run a call under one plan, and what is known changes while they make calls. So a
// rank that hears of a new version of the fabric first promises not to begin another call without
// being told; the coordinator takes the highest number that comes next on any member, and from that
// call on all plan by the new version (api/state/replanning.hpp). A caller waits only where it
// begins a call before the coordinator has answered. That answer depends on no call: control
// threads give it, in the time of a few messages, as soon as all members have made the
// communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "api/call/call_log.hpp"
#include "base/mutex.hpp"
#include "topology/fabric/slow_boundary.hpp"

namespace sennit {

// What all ranks know of the fabric from a moment on. 0: as they agreed at the start.
struct FabricVersion {
  uint64_t number = 0;  // grows
  std::vector<SlowBoundary> slow;
};
using FabricVersionPointer = std::shared_ptr<const FabricVersion>;

// Of one communicator. Any thread.
class PlanSwitches {
 public:
  explicit PlanSwitches(CallLog& calls) : calls_(calls) {}
  PlanSwitches(const PlanSwitches&) = delete;
  PlanSwitches& operator=(const PlanSwitches&) = delete;

  // The first call that waits to be told; the same number for a version that was promised before,
  // and the one that was settled for one that is. Nothing where only a later one is.
  std::optional<uint32_t> promise(uint64_t version) SENNIT_EXCLUDES(mutex_);
  // From call `from` on. Earlier versions that are not settled will not come any more.
  void settle(FabricVersionPointer version, uint32_t from) SENNIT_EXCLUDES(mutex_);

  // Whether it is known what this call runs under.
  bool settled(uint32_t seq) const SENNIT_EXCLUDES(mutex_);
  // What the latest call that was decided runs under: FabricVersion::number.
  uint64_t current() const { return current_.load(std::memory_order_acquire); }
  // What this call, which has begun and is settled, runs under.
  FabricVersionPointer version_for(uint32_t seq) SENNIT_EXCLUDES(mutex_);

 private:
  struct Switch {
    uint32_t from = 0;
    FabricVersionPointer version;
  };
  // Switches that calls may still ask for, which have their number and not yet their plan.
  static constexpr size_t kRemembered = 64;

  void hold() SENNIT_REQUIRES(mutex_);

  CallLog& calls_;
  mutable Mutex mutex_;
  std::atomic<uint64_t> current_ = 0;
  // By version: the number that was promised.
  std::map<uint64_t, uint32_t> promises_ SENNIT_GUARDED_BY(mutex_);
  std::deque<Switch> passed_ SENNIT_GUARDED_BY(mutex_);  // calls have come so far
  std::deque<Switch> ahead_ SENNIT_GUARDED_BY(mutex_);   // settled, and no call has come so far
};

}  // namespace sennit
