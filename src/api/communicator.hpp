// communicator.hpp: a set of ranks that call collectives together.
//
// It puts together what has a lock of its own each, or needs none: what any thread may know of it
// and do to it (CommunicatorState), what its calls become (Preparation), how works get under way
// (WorkStarter), those that are (StartedWorks), the stream of calls on device memory
// (DeviceStream), and what is made out of it (GroupMaker). No two of these locks are held at once,
// but for the state's, and none while this rank waits for others; the engine's is taken after them.
//
// Any thread, but for finalize() and calibrate(); whoever makes calls from several threads sees to
// it that all ranks make them in the same order. Small blocking calls have a shorter way, without a
// lock and without a Work (SmallCalls).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/call/call.hpp"
#include "api/call/device_stream.hpp"
#include "api/context.hpp"
#include "api/group_maker.hpp"
#include "api/preparation.hpp"
#include "api/started_works.hpp"
#include "api/state/communicator_state.hpp"
#include "api/work.hpp"
#include "api/work_starter.hpp"

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
  const TierTree& tree() const { return preparation_.tree(); }
  int position() const { return preparation_.position(); }
  Context& context() { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }

  // ---- calls ----
  // Checks the call and makes it ready; an error leaves the communicator as it was. Its work is not
  // started yet.
  Result<std::unique_ptr<Work>> prepare(const Call& call);
  // Prepare, start, wait, finish; on device memory it returns when the call is in its stream.
  Status run(const Call& call);
  // A call's or a split's arguments were off, or those of the making of a group, and it is not
  // made: where other ranks wait for it, and this one makes nothing in its place for some seconds,
  // they are told `why`. What failed otherwise is no news to them, or no fault of the call's.
  void refuses(const Status& why);
  void refuses_group(const Status& why);
  // Calls on memory that the calling thread's current device reaches go into this stream from now
  // on.
  Status set_stream(void* stream);
  // Started works that nobody waits for; they are finished by and by, the last of them by settle().
  void keep(std::shared_ptr<Work> work) { started_.keep(std::move(work)); }
  void settle() { started_.settle(); }  // waits for them, and leaves all graphs
  // Ops that are sums of what was multiplied first; see CustomOps.
  int create_op(const void* scalar, DataType type) { return preparation_.create_op(scalar, type); }
  Result<int> create_op_in_stream(const void* scalar, DataType type);
  Status destroy_op(int op) { return preparation_.destroy_op(op); }

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

  // ---- planning and tuning: see Preparation ----
  Request to_request(const Call& call) const { return preparation_.to_request(call); }
  Result<Plan> plan(const Request& request,
                    Planning::Memory memory = Planning::Memory::host) const {
    return preparation_.plan(request, memory);
  }
  Result<Plan> plan_by_model(const Request& request,
                             Planning::Memory memory = Planning::Memory::host) const {
    return preparation_.plan_by_model(request, memory);
  }
  // What the latest call that has begun was planned by: FabricVersion::number.
  uint64_t fabric_version() const { return state_.switches().current(); }
  const Trials* trials(const Call& call) const { return preparation_.trials(call); }
  // Of the call that ended last: its time until all ranks had ended it, which only the caller can
  // know.
  void retime(const Call& call, uint64_t ns) { preparation_.retime(call, ns); }
  void set_effort(Trials::Effort effort) { preparation_.set_effort(effort); }
  // Collective; no call may be under way.
  void calibrate(const CostModel& cost) { preparation_.calibrate(cost); }

 private:
  friend class Work;
  Communicator(std::shared_ptr<Context> context, NewCommunicator of);
  static std::shared_ptr<Communicator> create(std::shared_ptr<Context> context, NewCommunicator of);

  Result<std::unique_ptr<Work>> prepare_work(const Call& call);
  // Takes the maximum over the ranks of every time of trials that are over, and decides by them.
  Status decide_trials(const Call& call);
  Status enqueue(std::shared_ptr<Work> work);
  void start(Work& work, bool nonblocking);
  // The work has ended; returns its result.
  Status end(Work& work);
  Status result_of(const Execution& execution);
  Status run_small(const Call& call, Execution& execution);
  Status run_to_its_end(const Execution& execution);

  const std::shared_ptr<Context> context_;
  CommunicatorState state_;
  Preparation preparation_;
  DeviceStream stream_;
  WorkStarter starter_;
  StartedWorks started_;
  GroupMaker groups_;
};

}  // namespace sennit
