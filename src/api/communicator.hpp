// communicator.hpp: a set of ranks that call collectives together.
//
// One thread at a time, except abort(), status(), failed_ranks() and what is behind state(), which
// any thread may call. A call becomes a Request in fabric order (api/call/call.hpp); its plan and
// program are made once (Planning) and kept with idle Executions (PlanCache), so that a repeated
// call allocates nothing; small blocking calls have a shorter way (SmallCalls). Memory: O(ranks)
// for the tree, plus the cached programs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/call/call.hpp"
#include "api/call/call_trials.hpp"
#include "api/call/plan_cache.hpp"
#include "api/call/planning.hpp"
#include "api/call/self_messages.hpp"
#include "api/call/small_calls.hpp"
#include "api/communicator_state.hpp"
#include "api/context.hpp"
#include "api/group_channel.hpp"
#include "api/work.hpp"
#include "engine/mailbox.hpp"

namespace sennit {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // `members`: world ranks, by rank in this communicator; this rank is one of them. `id`: the same
  // on all of them, and of no other communicator of the context.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Context> context,
                                                      std::vector<int> members, uint32_t id);
  ~Communicator();

  int rank() const { return state_.rank(); }
  int size() const { return state_.size(); }
  uint32_t id() const { return state_.id(); }  // see create()
  const std::vector<int>& members() const { return state_.members(); }
  const TierTree& tree() const { return planning_.tree(); }
  int position() const { return tree().position_of_rank[static_cast<size_t>(rank())]; }
  Context& context() { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }

  // ---- calls ----
  // Checks the call and makes it ready; an error leaves the communicator as it was. Its work is not
  // started yet.
  Result<std::unique_ptr<Work>> prepare(const Call& call);
  Status run(const Call& call);  // prepare, start, wait, finish
  // Ops that are sums of what was multiplied first; see CustomOps.
  CustomOps& custom_ops() { return custom_ops_; }

  // ---- its life ----
  // Collective. `result` stays null for SENNIT_NO_COLOR. The parts are planned as though they call
  // at the same time: each with its share of what they use together.
  Status split(int color, int key, std::shared_ptr<Communicator>* result);
  // Called by the members of the new one alone, which `ranks` lists: each once, this rank among
  // them, the same list on all; what stands at i becomes rank i. Also where this one was aborted.
  // Any thread; `tag` tells those that do it at once apart.
  Status create_group(const std::vector<int>& ranks, int tag,
                      std::shared_ptr<Communicator>* result);
  // Collective. Ends what is outstanding, whether somebody has waited for it already or not.
  Status finalize();
  void abort() { state_.abort(); }
  Status status() const { return state_.status(); }  // ok, or what the communicator failed with
  std::vector<int> failed_ranks() const { return state_.failed_ranks(); }

  // ---- planning and tuning ----
  Request to_request(const Call& call) const { return request_of(call, tree(), rank()); }
  Result<Plan> plan(const Request& request) const { return planning_.plan(request); }
  Result<Plan> plan_by_model(const Request& request) const {
    return planning_.plan_by_model(request);
  }
  // How the tuning of the like of this call stands; null where it is not tuned.
  const Trials* trials(const Call& call) const { return trials_.find(to_request(call)); }
  // Of the call that ended last: its time until all ranks had ended it, which only the caller can
  // know.
  void retime(const Call& call, uint64_t ns);
  // For trials that begin from now on.
  void set_effort(Trials::Effort effort) { trials_.set_effort(effort); }
  // Plans with these constants from now on, and tries anew. Collective; no call may be under way.
  void calibrate(const CostModel& cost);

 private:
  friend class Work;
  Communicator(std::shared_ptr<Context> context, std::vector<int> members, uint32_t id,
               TierTree tree);
  static std::shared_ptr<Communicator> create(std::shared_ptr<Context> context,
                                              std::vector<int> members, uint32_t id, TierTree tree);

  GroupChannel& channel() SENNIT_EXCLUDES(channel_mutex_);
  // What a call is prepared to, as the plan says or as trials do.
  Result<PlanCache::Entry*> find_or_prepare(PlanCache::Key key, const Plan* given);
  Result<Trials*> trials_of(const Call& call, const Request& request);
  Status decide(Trials& trials, const Request& request);
  void forget_plans(Collective collective);

  void start(Work& work, bool nonblocking);
  void start_self_message(Work& work);
  Status result_of(const Execution& execution);
  Status run_small(const Call& call, Execution& execution);
  void remember_small(const Call& call, SmallCalls::KeptCall& place);

  const std::shared_ptr<Context> context_;
  CommunicatorState state_;
  Planning planning_;
  std::vector<int> world_of_position_;
  PlanCache plans_;
  SmallCalls small_calls_;
  CallTrials trials_;
  CustomOps custom_ops_;
  SelfMessages self_messages_;
  Mutex channel_mutex_;
  // From the first create_group() on.
  std::unique_ptr<GroupChannel> channel_ SENNIT_GUARDED_BY(channel_mutex_);
  Mailbox mailbox_;        // of messages between two ranks
  uint32_t next_seq_ = 1;  // of collective calls
  uint32_t splits_ = 0;
  std::vector<Work*> outstanding_;  // started and not finished
};

}  // namespace sennit
