// preparation.hpp: what a communicator's calls become: from a call as the user made it to an
// execution that is ready to start.
//
// A call is checked and becomes a Request in fabric order (api/call/call.hpp). Its plan and its
// program are made once (Planning) and kept with idle executions (PlanCache), so that a call that
// comes again plans nothing and allocates nothing. Where the job tunes, the plan is the one whose
// turn it is (CallTrials). What is learned later makes plans anew: the winner of trials, another
// version of the fabric, other constants.
//
// Any thread. One lock, held while a call is planned and never while this rank waits; the engine's
// is taken after it. Memory: O(ranks) for the tree, plus the cached programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "api/call/call.hpp"
#include "api/call/call_trials.hpp"
#include "api/call/plan_cache.hpp"
#include "api/call/planning.hpp"
#include "api/call/small_calls.hpp"
#include "api/call/stream_calls.hpp"
#include "api/state/communicator_state.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "engine/engine.hpp"
#include "engine/execution.hpp"

namespace sennit {

class Preparation {
 public:
  // What all ranks of the job know and want from the start on.
  struct Settings {
    const PlanOptions& options;  // outlives the object
    bool may_tune = false;       // what was measured decides
    bool tunes = false;          // calls that come are tried with several plans
    Tuning tuning;
  };
  // `state` and `engine` outlive this.
  Preparation(const CommunicatorState& state, Engine& engine, TierTree tree, Settings settings);
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  // Without the lock: it does not change.
  const TierTree& tree() const SENNIT_NO_THREAD_SAFETY_ANALYSIS { return planning_.tree(); }
  int position() const { return tree().position_of_rank[static_cast<size_t>(state_.rank())]; }
  Request to_request(const Call& call) const { return request_of(call, tree(), state_.rank()); }

  // ---- calls ----
  struct Ready {
    std::unique_ptr<Execution> execution;  // none: a message to oneself
    std::vector<std::byte> scaled;         // what it reads, of a custom op
    Trials* trials = nullptr;              // where its time goes
    int sample = -1;                       // as which of their times; -1: it is not timed
    uint64_t generation = 0;               // of plans, in which this was made
  };
  // An error where the call's arguments are off, or the communicator has failed.
  Result<Ready> prepare(const Call& call, const StreamTarget& target) SENNIT_EXCLUDES(mutex_);
  // What does the same as `made` under that version of the fabric, by which later calls are planned
  // from now on unless they are already by a later one. Null: `made` is of that version.
  Result<std::unique_ptr<Execution>> prepare_under(const FabricVersionPointer& version,
                                                   const Execution& made,
                                                   const StreamTarget& target)
      SENNIT_EXCLUDES(mutex_);
  // One that has ended, or is not needed.
  void give_back(std::unique_ptr<Execution> execution) SENNIT_EXCLUDES(mutex_);

  // The short way (api/call/small_calls.hpp): without the lock.
  SmallCalls::Claim claim_small(const Call& call) { return small_calls_.claim(call); }
  // Keeps a call for it that has just been made, prepared to this in that generation of plans.
  void remember_small(const Call& call, const std::shared_ptr<const Prepared>& prepared,
                      uint64_t generation) SENNIT_EXCLUDES(mutex_);

  // ---- ops that are sums of what was multiplied first; see CustomOps ----
  int create_op(const void* scalar, DataType type) SENNIT_EXCLUDES(mutex_);
  int create_op_in_stream(const void* scalar, MemoryKind kind, DataType type)
      SENNIT_EXCLUDES(mutex_);
  Status destroy_op(int op) SENNIT_EXCLUDES(mutex_);

  // ---- planning and tuning ----
  Result<Plan> plan(const Request& request, Planning::Memory memory) const SENNIT_EXCLUDES(mutex_);
  Result<Plan> plan_by_model(const Request& request, Planning::Memory memory) const
      SENNIT_EXCLUDES(mutex_);
  // How the trials of the like of this call stand; null: there are none.
  const Trials* trials(const Call& call) const SENNIT_EXCLUDES(mutex_);
  // The time of a call of these trials, in nanoseconds.
  void took(Trials& trials, int sample, uint64_t ns) SENNIT_EXCLUDES(mutex_);
  // A better one for the call before.
  void retime(const Call& call, uint64_t ns) SENNIT_EXCLUDES(mutex_);
  void set_effort(Trials::Effort effort) SENNIT_EXCLUDES(mutex_);  // of trials that begin later
  // Trials that are over and not decided: this rank's times.
  struct Vote {
    Request request;
    Trials* trials = nullptr;
    std::vector<double> mine_us;
  };
  // Nothing where the like of this call is not that far. It is on all ranks at the same call.
  std::optional<Vote> vote(const Call& call) SENNIT_EXCLUDES(mutex_);
  // By the slowest rank's times, the same on all ranks. What is new in the tuning table.
  Tuning decide(const Vote& vote, const std::vector<double>& slowest_us) SENNIT_EXCLUDES(mutex_);
  // Plans with these constants from now on, and tries anew. No call may be under way.
  void calibrate(const CostModel& cost) SENNIT_EXCLUDES(mutex_);

 private:
  bool is_tried(const Call& call) const {
    return tunes_ && CallTrials::takes_part(call, state_.size());
  }
  Result<Trials*> trials_of(const Call& call, const Request& request) SENNIT_REQUIRES(mutex_);
  Result<PlanCache::Entry*> find_or_prepare(PlanCache::Key key, const Plan* given)
      SENNIT_REQUIRES(mutex_);
  Result<std::unique_ptr<Execution>> planned_by(const FabricVersionPointer& version,
                                                const Request& request, const StreamTarget& target)
      SENNIT_REQUIRES(mutex_);
  std::unique_ptr<Execution> idle_execution(PlanCache::Entry& entry, const StreamTarget& target)
      SENNIT_REQUIRES(mutex_);
  std::unique_ptr<Execution> new_execution(std::shared_ptr<const Prepared> prepared,
                                           const StreamTarget& target) const;
  void note(const Request& request, const Plan& plan) SENNIT_REQUIRES(mutex_);
  void forget_plans(Collective collective) SENNIT_REQUIRES(mutex_);
  void forget_all_plans() SENNIT_REQUIRES(mutex_);

  static constexpr size_t kMostNotedPlans = 4096;

  const CommunicatorState& state_;
  Engine& engine_;
  const bool tunes_;
  std::vector<int> world_of_position_;
  SmallCalls small_calls_;  // its changes behind the lock
  mutable Mutex mutex_;
  Planning planning_ SENNIT_GUARDED_BY(mutex_);
  PlanCache plans_ SENNIT_GUARDED_BY(mutex_);
  std::set<uint64_t> noted_plans_ SENNIT_GUARDED_BY(mutex_);  // in the rank's recording
  uint64_t generation_ SENNIT_GUARDED_BY(mutex_) = 0;  // of plans: how often some were forgotten
  CallTrials trials_ SENNIT_GUARDED_BY(mutex_);
  CustomOps custom_ops_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit
