// communicator.hpp: a set of ranks that call collectives together.
//
// Any thread, but for finalize() and calibrate(); whoever makes calls from several threads sees to
// it that all ranks make them in the same order. The lock is never held while this rank waits for
// others, and is taken before the engine's. A call becomes a Request in fabric order
// (api/call/call.hpp); its plan and program are made once (Planning) and kept with idle Executions
// (PlanCache), so that a repeated call allocates nothing; small blocking calls have a shorter way,
// without the lock (SmallCalls). Memory: O(ranks) for the tree, plus the cached programs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "api/call/call.hpp"
#include "api/call/call_trials.hpp"
#include "api/call/plan_cache.hpp"
#include "api/call/planning.hpp"
#include "api/call/self_messages.hpp"
#include "api/call/small_calls.hpp"
#include "api/call/stream_calls.hpp"
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
  // Without the lock: it does not change.
  const TierTree& tree() const SENNIT_NO_THREAD_SAFETY_ANALYSIS { return planning_.tree(); }
  int position() const { return tree().position_of_rank[static_cast<size_t>(rank())]; }
  Context& context() { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }

  // ---- calls ----
  // Checks the call and makes it ready; an error leaves the communicator as it was. Its work is not
  // started yet.
  Result<std::unique_ptr<Work>> prepare(const Call& call) SENNIT_EXCLUDES(mutex_);
  // Prepare, start, wait, finish; on device memory it returns when the call is in its stream.
  Status run(const Call& call) SENNIT_EXCLUDES(mutex_);
  // A call's or a split's arguments were off, or those of the making of a group, and it is not
  // made: where other ranks wait for it, and this one makes nothing in its place for some seconds,
  // they are told `why`. What failed otherwise is no news to them, or no fault of the call's.
  void refuses(const Status& why);
  void refuses_group(const Status& why) SENNIT_EXCLUDES(channel_mutex_);
  // Calls on memory that the calling thread's current device reaches go into this stream from now
  // on.
  Status set_stream(void* stream) SENNIT_EXCLUDES(mutex_);
  // Started works that nobody waits for; they are finished by and by, the last of them by settle().
  void keep(std::shared_ptr<Work> work) SENNIT_EXCLUDES(mutex_);
  void settle() SENNIT_EXCLUDES(mutex_);  // waits for them, and leaves all graphs
  // Ops that are sums of what was multiplied first; see CustomOps.
  int create_op(const void* scalar, DataType type) SENNIT_EXCLUDES(mutex_);
  Result<int> create_op_in_stream(const void* scalar, DataType type) SENNIT_EXCLUDES(mutex_);
  Status destroy_op(int op) SENNIT_EXCLUDES(mutex_);

  // ---- its life ----
  // Collective. `result` stays null for SENNIT_NO_COLOR. The parts are planned as though they call
  // at the same time: each with its share of what they use together.
  Status split(int color, int key, std::shared_ptr<Communicator>* result);
  // Called by the members of the new one alone, which `ranks` lists: each once, this rank among
  // them, the same list on all; what stands at i becomes rank i. Also where this one was aborted.
  // `tag` tells the threads that do it at once apart.
  Status create_group(const std::vector<int>& ranks, int tag,
                      std::shared_ptr<Communicator>* result);
  // Collective. Ends what is outstanding, whether somebody has waited for it already or not. No
  // other thread uses this or its works meanwhile.
  Status finalize();
  void abort() { state_.abort(); }
  Status status() const { return state_.status(); }  // ok, or what the communicator failed with
  std::vector<int> failed_ranks() const { return state_.failed_ranks(); }

  // ---- planning and tuning ----
  Request to_request(const Call& call) const { return request_of(call, tree(), rank()); }
  Result<Plan> plan(const Request& request, Planning::Memory memory = Planning::Memory::host) const
      SENNIT_EXCLUDES(mutex_);
  Result<Plan> plan_by_model(const Request& request,
                             Planning::Memory memory = Planning::Memory::host) const
      SENNIT_EXCLUDES(mutex_);
  // What the latest call that has begun was planned by: FabricVersion::number.
  uint64_t fabric_version() const { return state_.switches().current(); }
  // How the tuning of the like of this call stands; null where it is not tuned.
  const Trials* trials(const Call& call) const SENNIT_EXCLUDES(mutex_);
  // Of the call that ended last: its time until all ranks had ended it, which only the caller can
  // know.
  void retime(const Call& call, uint64_t ns) SENNIT_EXCLUDES(mutex_);
  // For trials that begin from now on.
  void set_effort(Trials::Effort effort) SENNIT_EXCLUDES(mutex_);
  // Plans with these constants from now on, and tries anew. Collective; no call may be under way.
  void calibrate(const CostModel& cost) SENNIT_EXCLUDES(mutex_);

 private:
  friend class Work;
  Communicator(std::shared_ptr<Context> context, std::vector<int> members, uint32_t id,
               TierTree tree);
  static std::shared_ptr<Communicator> create(std::shared_ptr<Context> context,
                                              std::vector<int> members, uint32_t id, TierTree tree);

  Result<std::unique_ptr<Work>> prepare_work(const Call& call) SENNIT_EXCLUDES(mutex_);
  GroupChannel& channel() SENNIT_EXCLUDES(channel_mutex_);
  // What a call is prepared to, as the plan says or as trials do.
  Result<PlanCache::Entry*> find_or_prepare(PlanCache::Key key, const Plan* given)
      SENNIT_REQUIRES(mutex_);
  // The execution for call `seq`, which is undecided and was to run `made`; null: that one, or the
  // communicator has failed. Waits until it is known by which plan all ranks run this number.
  std::unique_ptr<Execution> planned_anew(uint32_t seq, Execution& made, PlanCache::Where where)
      SENNIT_EXCLUDES(mutex_);
  void wait_until_settled(uint32_t seq) SENNIT_EXCLUDES(mutex_);
  Result<std::unique_ptr<Execution>> planned_by(const FabricVersionPointer& version,
                                                const Request& request, PlanCache::Where where)
      SENNIT_REQUIRES(mutex_);
  std::unique_ptr<Execution> idle_execution(PlanCache::Entry& entry) SENNIT_REQUIRES(mutex_);
  Result<Trials*> trials_of(const Call& call, const Request& request) SENNIT_REQUIRES(mutex_);
  Status decide_trials(const Call& call) SENNIT_EXCLUDES(mutex_);  // where they are over
  void forget_plans(Collective collective) SENNIT_REQUIRES(mutex_);

  // Whose memory the call is on; of the host's it is made once the stream has come to its end.
  Result<StreamTarget> target_of(const Call& call) SENNIT_EXCLUDES(mutex_);
  Status enqueue(std::shared_ptr<Work> work) SENNIT_EXCLUDES(mutex_);
  std::unique_ptr<Execution> new_execution(std::shared_ptr<const Prepared> prepared,
                                           PlanCache::Where where) SENNIT_REQUIRES(mutex_);
  void start(Work& work, bool nonblocking) SENNIT_EXCLUDES(mutex_);
  Status join_place(Work& work);
  // In place of start_execution(): the call becomes part of the graph.
  Status capture(Work& work) SENNIT_EXCLUDES(mutex_);
  void leave_graphs() SENNIT_EXCLUDES(mutex_);
  // It is not made again; waits until it is not under way.
  void leave_graph(Work& work) SENNIT_EXCLUDES(mutex_);
  // The number of a collective call that begins, and what runs it.
  uint32_t number_call(Work& work) SENNIT_EXCLUDES(mutex_);
  void start_execution(Work& work, bool nonblocking) SENNIT_EXCLUDES(mutex_);
  void start_self_message(Work& work) SENNIT_EXCLUDES(mutex_);
  void tell_when_over(StreamPlace& place, std::function<void()> over);
  void give_back(std::unique_ptr<Execution> execution) SENNIT_EXCLUDES(mutex_);
  // The work has ended; returns its result.
  Status end(Work& work) SENNIT_EXCLUDES(mutex_);
  Status end_self_message(const Work& work) SENNIT_EXCLUDES(mutex_);
  Work* outstanding() SENNIT_EXCLUDES(mutex_);  // one of them, or null
  Status result_of(const Execution& execution);
  Status run_small(const Call& call, Execution& execution);
  Status run_to_its_end(const Execution& execution);
  void remember_small(const Call& call, const std::shared_ptr<const Prepared>& prepared,
                      uint64_t generation) SENNIT_EXCLUDES(mutex_);

  const std::shared_ptr<Context> context_;
  CommunicatorState state_;
  std::vector<int> world_of_position_;
  SmallCalls small_calls_;  // its changes behind the lock
  mutable Mutex mutex_;
  Planning planning_ SENNIT_GUARDED_BY(mutex_);
  PlanCache plans_ SENNIT_GUARDED_BY(mutex_);
  static constexpr size_t kMostNotedPlans = 4096;
  std::set<uint64_t> noted_plans_ SENNIT_GUARDED_BY(mutex_);  // in the rank's recording
  uint64_t generation_ SENNIT_GUARDED_BY(mutex_) = 0;  // of plans: how often some were forgotten
  CallTrials trials_ SENNIT_GUARDED_BY(mutex_);
  CustomOps custom_ops_ SENNIT_GUARDED_BY(mutex_);
  SelfMessages self_messages_ SENNIT_GUARDED_BY(mutex_);
  uint32_t splits_ SENNIT_GUARDED_BY(mutex_) = 0;
  std::vector<Work*> outstanding_ SENNIT_GUARDED_BY(mutex_);  // started and not finished
  StreamTarget target_ SENNIT_GUARDED_BY(mutex_);
  std::atomic<bool> has_stream_{false};  // target_ is set
  std::vector<std::shared_ptr<Work>> kept_ SENNIT_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Work>> captured_ SENNIT_GUARDED_BY(mutex_);  // in graphs
  Mutex channel_mutex_;
  // From the first create_group() on.
  std::unique_ptr<GroupChannel> channel_ SENNIT_GUARDED_BY(channel_mutex_);
  Mailbox mailbox_;  // of messages between two ranks; behind the engine's lock
};

}  // namespace sennit
