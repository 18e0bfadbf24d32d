// communicator.cpp: see api/communicator.hpp.
#include "api/communicator.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "base/log.hpp"
#include "plan/groups/share.hpp"
#include "record/notes.hpp"

namespace sennit {

namespace {

Result<TierTree> tree_of(const Context& context, const std::vector<int>& members) {
  std::vector<Placement> placements;
  for (const int world : members) placements.push_back(context.placement(world));
  return contract(context.fabric(), placements);
}

// What is on a device's memory has messages of its own kind: a rank that passes other memory made
// another call, since how messages go is chosen by it. So did a rank whose call is in no graph,
// since it is made once.
std::shared_ptr<const Prepared> made_where(std::shared_ptr<const Prepared> prepared,
                                           PlanCache::Where where) {
  constexpr uint64_t kOnDevice = 0x9e3779b97f4a7c15, kInGraph = 0xbf58476d1ce4e5b9;
  if (where == PlanCache::Where::host) return prepared;
  auto copy = std::make_shared<Prepared>(*prepared);
  copy->signature ^= kOnDevice;
  copy->description += " of device memory";
  if (where == PlanCache::Where::device) return copy;
  copy->signature ^= kInGraph;
  copy->description += ", in a graph";
  return copy;
}

Planning::Memory memory_of(PlanCache::Where where) {
  return where == PlanCache::Where::host ? Planning::Memory::host : Planning::Memory::device;
}

// Whether there is memory that this process may touch; also where the kernel does not say.
bool is_there(uintptr_t memory) {
  std::byte seen{};
  const iovec here{&seen, 1}, there{reinterpret_cast<void*>(memory), 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

// Of memory that no device knows. It may have been one's, and to touch what was freed there ends
// the process. `bytes`: as many at least are used.
Status check_there(const void* memory, size_t bytes) {
  if (!memory || bytes == 0) return {};
  constexpr uintptr_t kPageBytes = 4096;
  const auto first = reinterpret_cast<uintptr_t>(memory), last = first + bytes - 1;
  const bool one_page = first / kPageBytes == last / kPageBytes;
  for (const uintptr_t at : {first, last})
    if ((at == first || !one_page) && !is_there(at))
      return invalid(
          fmt::format("there is no memory of the host's at {:#x}, and none that the "
                      "device knows: was it freed?",
                      at));
  return {};
}

PlanCache::Where where_of(const StreamTarget& target) {
  if (!target.accelerator) return PlanCache::Where::host;
  return target.in_graph ? PlanCache::Where::graph : PlanCache::Where::device;
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(std::shared_ptr<Context> context,
                                                           std::vector<int> members, uint32_t id) {
  Result<TierTree> tree = tree_of(*context, members);
  if (!tree) return tree.status();
  return create(std::move(context), std::move(members), id, *std::move(tree));
}

std::shared_ptr<Communicator> Communicator::create(std::shared_ptr<Context> context,
                                                   std::vector<int> members, uint32_t id,
                                                   TierTree tree) {
  std::shared_ptr<Communicator> made(
      new Communicator(std::move(context), std::move(members), id, std::move(tree)));
  made->context_->registry().add(&made->state_);
  made->context_->replanning().added(made->state_);
  return made;
}

Communicator::Communicator(std::shared_ptr<Context> context, std::vector<int> members, uint32_t id,
                           TierTree tree)
    : context_(std::move(context)),
      state_(id, std::move(members), context_->rank(), context_->engine(), context_->control()),
      small_calls_(context_->engine()),
      planning_(std::move(tree), context_->plan_options(), context_->may_tune(),
                context_->tuning()),
      plans_(context_->engine()),
      mailbox_(context_->engine(), id, state_.others()) {
  for (const int32_t rank : this->tree().rank_of_position)
    world_of_position_.push_back(state_.world_rank(rank));
  context_->engine().recording().note(encode(CommunicatorNote{this->id(), this->members()}),
                                      Recording::NoteKind::communicator);
}

Communicator::~Communicator() {
  context_->replanning().removed(state_);
  context_->registry().remove(&state_);
}

// ---- a call ----

Result<std::unique_ptr<Work>> Communicator::prepare(const Call& call) {
  Result<std::unique_ptr<Work>> work = prepare_work(call);
  // Nobody who is in a collective call waits for a message.
  if (!work && call.collective != Collective::send_recv) refuses(work.status());
  return work;
}

void Communicator::refuses(const Status& why) {
  if (why.kind() == SENNIT_INVALID_ARGUMENT)
    state_.calls().refuses(CallLog::Refused::call, why.text());
}

// The channel is what those who wait ask about, and what they fail.
void Communicator::refuses_group(const Status& why) {
  if (why.kind() != SENNIT_INVALID_ARGUMENT) return;
  channel();
  state_.calls().refuses(CallLog::Refused::group, why.text());
}

Result<std::unique_ptr<Work>> Communicator::prepare_work(const Call& given_call) {
  Call call = given_call;
  const Result<StreamTarget> target = target_of(call);
  if (!target) return target.status();
  call.on_device = target->accelerator != nullptr;
  call.stream = target->stream;
  call.in_graph = target->in_graph;
  call.as_planned |= call.on_device;
  SENNIT_RETURN_IF_ERROR(decide_trials(call));
  std::unique_ptr<Work> work;  // before the lock, which it takes when it ends
  const MutexLock lock(mutex_);
  SENNIT_RETURN_IF_ERROR(check_call(call, custom_ops_, rank(), size()));
  SENNIT_RETURN_IF_ERROR(status());
  work = std::make_unique<Work>(shared_from_this(), call);
  work->target_ = *target;
  if (call.collective == Collective::send_recv && call.root == rank()) return work;
  PlanCache::Key key{to_request(call)};
  key.where = where_of(*target);
  if (call.collective == Collective::send_recv) {
    key.role = call.receiving ? PlanCache::Role::receive : PlanCache::Role::send;
    key.request.in_place = false;
  }
  const Result<Trials*> trials = trials_of(call, key.request);
  if (!trials) return trials.status();
  const Plan* given = nullptr;
  if (*trials) {
    const Trials::Turn turn = (*trials)->next();
    given = &(*trials)->plans()[turn.plan];
    key.variant = turn.plan + 1;
    work->trials_ = *trials;
    work->sample_ = turn.sample;
  }
  const Result<PlanCache::Entry*> found = find_or_prepare(std::move(key), given);
  if (!found) return found.status();
  PlanCache::Entry& entry = **found;
  work->execution_ = idle_execution(entry);
  work->generation_ = generation_;
  work->execution_->timed = work->sample_ >= 0;
  fill_buffers(call, entry.key.request, tree(), rank(), custom_ops_, &work->scaled_,
               &work->execution_->buffers());
  return work;
}

std::unique_ptr<Execution> Communicator::idle_execution(PlanCache::Entry& entry) {
  if (entry.idle.empty()) return new_execution(entry.prepared, entry.key.where);
  std::unique_ptr<Execution> execution = std::move(entry.idle.back());
  entry.idle.pop_back();
  return execution;
}

std::unique_ptr<Execution> Communicator::new_execution(std::shared_ptr<const Prepared> prepared,
                                                       PlanCache::Where where) {
  return std::make_unique<Execution>(
      context_->engine(), state_.id(), world_of_position_, std::move(prepared),
      where == PlanCache::Where::host ? nullptr : target_.accelerator);
}

Result<PlanCache::Entry*> Communicator::find_or_prepare(PlanCache::Key key, const Plan* given) {
  if (PlanCache::Entry* const known = plans_.find(key)) return known;
  if (key.role != PlanCache::Role::collective) {
    const bool receiving = key.role == PlanCache::Role::receive;
    std::shared_ptr<const Prepared> prepared =
        made_where(planning_.prepare_message(key.request, receiving, position()), key.where);
    return &plans_.add(std::move(key), std::move(prepared));
  }
  Result<std::shared_ptr<const Prepared>> prepared =
      planning_.prepare(key.request, memory_of(key.where), given, position());
  if (!prepared) return prepared.status();
  const Plan& plan = (*prepared)->plan;
  if (noted_plans_.size() < kMostNotedPlans && noted_plans_.insert(plan.hash).second) {
    const PlanNote note{id(),
                        plan.hash,
                        key.request,
                        plan.algorithm,
                        plan.parameters,
                        plan.predicted_ns,
                        planning_.version()->slow};
    context_->engine().recording().note(encode(note), Recording::NoteKind::plan);
  }
  std::shared_ptr<const Prepared> made = made_where(*std::move(prepared), key.where);
  return &plans_.add(std::move(key), std::move(made));
}

void Communicator::start(Work& work, bool nonblocking) {
  if (work.is_captured()) {
    if (const Status joined = capture(work); !joined.ok()) state_.fail_and_tell(joined);
    return;
  }
  {
    const MutexLock lock(mutex_);
    work.outstanding_at_ = outstanding_.size();
    outstanding_.push_back(&work);
  }
  if (work.call_.collective == Collective::send_recv) state_.calls().goes_on();
  if (work.execution_)
    start_execution(work, nonblocking);
  else
    start_self_message(work);
}

void Communicator::start_execution(Work& work, bool nonblocking) {
  const Call& call = work.call_;
  Engine& engine = context_->engine();
  if (call.collective == Collective::send_recv) {
    if (const Status joined = join_place(work); !joined.ok()) state_.fail_and_tell(joined);
    const int peer =
        call.root == SENNIT_ANY_SOURCE ? Mailbox::kAnySource : state_.world_rank(call.root);
    const auto tag = static_cast<uint32_t>(call.tag);
    if (call.receiving)
      engine.start_receive(*work.execution_, mailbox_, peer, tag, nonblocking);
    else
      engine.start_send(*work.execution_, mailbox_, peer, tag, nonblocking);
  } else {
    const uint32_t seq = number_call(work);
    if (const Status joined = join_place(work); !joined.ok()) state_.fail_and_tell(joined);
    if (work.execution_->on_device()) state_.calls().in_stream(seq, work.execution_->armed_flag());
    engine.start(*work.execution_, seq, nonblocking);
  }
  // The communicator may have failed between the check and the start: then nobody cancels what was
  // just posted.
  if (const Status failed = status(); !failed.ok()) engine.fail_communicator(state_.id(), failed);
}

uint32_t Communicator::number_call(Work& work) {
  const CallLog::Begun begun = state_.calls().begins(work.execution_->shared_prepared());
  if (!begun.undecided) return begun.seq;
  if (auto anew = planned_anew(begun.seq, *work.execution_, where_of(work.target_))) {
    std::swap(work.execution_, anew);
    give_back(std::move(anew));
  }
  return begun.seq;
}

// ---- device memory ----

Status Communicator::set_stream(void* stream) {
  const Result<Accelerator*> device = cuda_device_of(stream);
  if (!device) return device.status();
  const MutexLock lock(mutex_);
  if (target_.accelerator && target_.accelerator != *device)
    return invalid("the communicator has a stream of another device: one device a communicator");
  target_ = {*device, (*device)->handle_of(stream)};
  has_stream_ = true;
  return {};
}

Result<StreamTarget> Communicator::target_of(const Call& call) {
  StreamTarget target;
  if (!has_stream_ || call.internal) return target;
  {
    const MutexLock lock(mutex_);
    target = target_;
  }
  const CallMemory memory = memory_of(call, rank());
  const void* plain = nullptr;
  const void* other = nullptr;
  for (const void* const at : {memory.read, memory.written}) {
    if (!at || (call.count == 0 && !call.vector_variant)) continue;
    const Result<MemoryKind> kind = target.accelerator->look(at);
    if (!kind) return kind.status();
    (*kind == MemoryKind::plain ? plain : other) = at;
  }
  if (plain && other)
    return invalid(
        fmt::format("the memory at {} is the host's alone, that at {} is a device's or pinned: "
                    "both have to be of a kind",
                    plain, other));
  if (call.collective == Collective::barrier) return StreamTarget{};
  const Result<bool> captured = target.accelerator->is_captured(target.stream);
  if (!captured) return captured.status();
  target.in_graph = *captured;
  if (target.in_graph && call.receiving && call.root == SENNIT_ANY_SOURCE)
    return Status(SENNIT_UNSUPPORTED,
                  "the stream is being captured into a graph: a receive there names its source");
  if (target.in_graph && plain)
    return invalid(
        fmt::format("the stream is being captured into a graph, and the memory at {} is "
                    "the host's alone: a graph has calls on memory of the device",
                    plain));
  // Who has no memory in a call makes the others' call, which is on the device.
  if (!plain) return target;
  // Of a v-variant only its counts tell how much is used, which are checked later.
  const size_t bytes = call.vector_variant ? 0 : call.count * type_bytes(call.type);
  SENNIT_RETURN_IF_ERROR(check_there(memory.read, bytes));
  if (memory.written != memory.read) SENNIT_RETURN_IF_ERROR(check_there(memory.written, bytes));
  // In the stream's order all the same.
  SENNIT_RETURN_IF_ERROR(target.accelerator->synchronize(target.stream));
  return StreamTarget{};
}

Status Communicator::enqueue(std::shared_ptr<Work> work) {
  StreamCalls calls;
  SENNIT_RETURN_IF_ERROR(work->take_place(calls));
  work->start(true);
  if (work->lacks_other_half()) return work->finish();
  const Status put = calls.enqueue();
  keep(std::move(work));
  return put;
}

Status Communicator::capture(Work& work) {
  const Call& call = work.call_;
  Execution* execution = work.execution_.get();
  work.graph_place_ = std::exchange(work.place_, nullptr);
  if (call.collective == Collective::send_recv) {
    const int peer = state_.world_rank(call.root);
    const auto tag = static_cast<uint32_t>(call.tag);
    uint32_t number = 0;
    {
      const MutexLock lock(context_->engine().mutex());
      if (call.receiving && mailbox_.waits_for(tag))
        return {
            SENNIT_UNSUPPORTED,
            fmt::format("a receive of tag {} is to be part of a graph while an earlier one from "
                        "any rank waits: nobody knows which messages that one will take",
                        tag)};
      number =
          call.receiving ? mailbox_.number_receive(peer, tag) : mailbox_.number_send(peer, tag);
    }
    SENNIT_RETURN_IF_ERROR(execution->capture_message(work.graph_place_, number, peer, tag));
  } else {
    const uint32_t number = number_call(work);
    execution = work.execution_.get();
    SENNIT_RETURN_IF_ERROR(execution->capture(work.graph_place_, number));
  }
  work.stream_calls_->add_bytes(*work.graph_place_, execution->work_bytes());
  return {};
}

void Communicator::leave_graph(Work& work) {
  context_->engine().drop(*work.execution_);
  {
    const MutexLock lock(context_->engine().mutex());
    work.execution_->leave_graph();
  }
  give_back(std::move(work.execution_));
}

Status Communicator::join_place(Work& work) {
  if (!work.place_) return {};
  const std::shared_ptr<StreamPlace> place = std::exchange(work.place_, nullptr);
  const Call& call = work.call_;
  const bool names_peer =
      call.collective == Collective::send_recv && call.root != SENNIT_ANY_SOURCE;
  SENNIT_RETURN_IF_ERROR(
      work.execution_->join(place, names_peer ? state_.world_rank(call.root) : -1));
  work.stream_calls_->add_bytes(*place, work.execution_->work_bytes());
  return {};
}

void Communicator::keep(std::shared_ptr<Work> work) {
  std::vector<std::shared_ptr<Work>> done;  // end behind the lock, which a work takes
  const auto take_done = [&](std::vector<std::shared_ptr<Work>>& works) {
    const auto first =
        std::partition(works.begin(), works.end(), [](const auto& kept) { return !kept->done(); });
    done.insert(done.end(), std::make_move_iterator(first), std::make_move_iterator(works.end()));
    works.erase(first, works.end());
  };
  const bool captured = work && work->is_captured();
  {
    const MutexLock lock(mutex_);
    take_done(kept_);
    take_done(captured_);
    if (work) (captured ? captured_ : kept_).push_back(std::move(work));
  }
  // It may have failed while the call was not yet among those that are dropped then.
  if (const Status failed = status(); captured && !failed.ok())
    context_->engine().fail_communicator(state_.id(), failed);
  for (const auto& kept : done) (void)kept->finish();  // a failure is the communicator's
}

void Communicator::settle() {
  leave_graphs();
  std::vector<std::shared_ptr<Work>> all;
  {
    const MutexLock lock(mutex_);
    all = std::exchange(kept_, {});
  }
  for (const auto& work : all) {
    work->wait(-1);
    (void)work->finish();
  }
}

void Communicator::leave_graphs() {
  std::vector<std::shared_ptr<Work>> captured;
  {
    const MutexLock lock(mutex_);
    captured = std::exchange(captured_, {});
  }
  for (const auto& work : captured) (void)work->finish();
}

// ---- plans that change ----

// Who waits long says so, as in a call that makes no progress: the others may never come to it.
void Communicator::wait_until_settled(uint32_t seq) {
  constexpr int64_t kSliceNs = 500'000'000;
  const auto settled = [&] { return state_.switches().settled(seq) || state_.failed(); };
  for (int64_t waited_ns = kSliceNs; !context_->engine().wait(settled, kSliceNs);
       waited_ns += kSliceNs) {
    CallDescriptor call;
    if (!state_.describe(seq, &call)) continue;
    call.stalled_ms = waited_ns / 1'000'000;
    context_->control().report_stall(call);
  }
}

std::unique_ptr<Execution> Communicator::planned_anew(uint32_t seq, Execution& made,
                                                      PlanCache::Where where) {
  wait_until_settled(seq);
  if (state_.failed()) return nullptr;  // what is started now is cancelled
  const FabricVersionPointer version = state_.switches().version_for(seq);
  Result<std::unique_ptr<Execution>> anew = std::unique_ptr<Execution>();
  {
    const MutexLock lock(mutex_);
    if (version->number > planning_.version()->number) {
      planning_.use(version);
      for (int c = 0; c < kCollectives; c++) forget_plans(static_cast<Collective>(c));
    }
    if (made.prepared().fabric_version != version->number)
      anew = planned_by(version, made.prepared().request, where);
  }
  if (!anew) {
    state_.fail_and_tell(anew.status());
    return nullptr;
  }
  const std::unique_ptr<Execution>& other = *anew;
  state_.calls().runs(seq, other ? other->shared_prepared() : made.shared_prepared());
  if (!other) return nullptr;
  other->buffers() = std::move(made.buffers());
  other->timed = false;
  return *std::move(anew);
}

Result<std::unique_ptr<Execution>> Communicator::planned_by(const FabricVersionPointer& version,
                                                            const Request& request,
                                                            PlanCache::Where where) {
  const FabricVersionPointer current = planning_.version();
  if (version->number == current->number) {
    PlanCache::Key key{request};
    key.where = where;
    const Result<PlanCache::Entry*> entry = find_or_prepare(std::move(key), nullptr);
    if (!entry) return entry.status();
    return idle_execution(**entry);
  }
  // Another thread has made a call since that is of the next version already.
  planning_.use(version);
  const Result<std::shared_ptr<const Prepared>> prepared =
      planning_.prepare(request, memory_of(where), nullptr, position());
  planning_.use(current);
  if (!prepared) return prepared.status();
  return new_execution(made_where(*prepared, where), where);
}

// Halves that differ fail the communicator, as they do between two ranks.
void Communicator::start_self_message(Work& work) {
  const std::shared_ptr<StreamPlace> place = std::exchange(work.place_, nullptr);
  work.self_matched_ = std::make_shared<SelfMessages::Meeting>(work.is_handled());
  Status met;
  {
    const MutexLock lock(mutex_);
    const StreamTarget& target = work.target_;
    met = self_messages_.start(
        work.call_, work.self_matched_, state_.id(), state_.world_rank(rank()),
        [&](void* to, const void* from, size_t bytes, auto copied) {
          SENNIT_RETURN_IF_ERROR(target.accelerator->copy(target.stream, to, from, bytes));
          if (copied) tell_when_over(*place, std::move(copied));
          return Status();
        });
  }
  if (!met.ok()) state_.fail_and_tell(met);
  if (work.self_matched_->met) context_->engine().wake_waiters();  // for the other half
}

// What was put into the stream is over when that comes to the place, which is enqueued behind it.
void Communicator::tell_when_over(StreamPlace& place, std::function<void()> over) {
  Engine& engine = context_->engine();
  const MutexLock lock(engine.mutex());
  place.when_reached([&engine, id = id(), over = std::move(over)](const Status& reached) {
    engine.assert_locked();
    if (reached.ok()) return over();
    engine.failed_here(id, reached);
  });
}

void Communicator::give_back(std::unique_ptr<Execution> execution) {
  const MutexLock lock(mutex_);
  plans_.give_back(std::move(execution));
}

Status Communicator::end(Work& work) {
  if (work.is_captured()) {
    leave_graph(work);
    return {};
  }
  Status result = work.execution_ ? result_of(*work.execution_) : end_self_message(work);
  const MutexLock lock(mutex_);
  outstanding_[work.outstanding_at_] = outstanding_.back();
  outstanding_[work.outstanding_at_]->outstanding_at_ = work.outstanding_at_;
  outstanding_.pop_back();
  if (!work.execution_) return result;
  if (work.sample_ >= 0 && result.ok() && !work.trials_->decided())
    work.trials_->took(work.sample_, work.execution_->finished_ns - work.started_ns_);
  plans_.give_back(std::move(work.execution_));
  return result;
}

// Where the other half has come only now, its copy is waited for.
Status Communicator::end_self_message(const Work& work) {
  const SelfMessages::Meeting& meeting = *work.self_matched_;
  Status withdrawn;
  {
    const MutexLock lock(mutex_);
    if (!meeting.met) withdrawn = self_messages_.withdraw(work.call_, work.self_matched_);
  }
  const auto is_over = [&] { return meeting.copied || state_.failed(); };
  if (withdrawn.ok()) context_->engine().wait(is_over, -1);
  if (meeting.copied) return {};
  return state_.failed() ? status() : withdrawn;
}

Work* Communicator::outstanding() {
  const MutexLock lock(mutex_);
  return outstanding_.empty() ? nullptr : outstanding_.back();
}

// After the execution is done: its result, as the communicator sees it.
Status Communicator::result_of(const Execution& execution) {
  Status result;
  {
    // The engine may still be on its way out of the execution that it completed.
    const MutexLock lock(context_->engine().mutex());
    result = execution.status();
  }
  if (result.ok()) return result;
  const Status verdict = status();  // what all ranks are told, where there is more to tell
  return verdict.ok() ? result : verdict;
}

Status Communicator::run(const Call& call) {
  if (has_stream_) {
    Result<std::unique_ptr<Work>> work = prepare(call);
    if (!work) return work.status();
    if ((*work)->target().accelerator) return enqueue(*std::move(work));
    (*work)->start(false);
    (*work)->wait(-1);
    return (*work)->finish();
  }
  bool keep = false;  // for the short way
  if (const SmallCalls::Claim kept = small_calls_.claim(call)) {
    keep = !kept->holds(call, rank());
    if (!keep && kept->execution && !state_.failed()) return run_small(call, *kept->execution);
  }
  Result<std::unique_ptr<Work>> work = prepare(call);
  if (!work) return work.status();
  // A broadcast's root is done when its messages are under way, and who comes late finds them
  // there: only from a common beginning does the slowest rank's time say how long the data took.
  if ((*work)->sample_ >= 0 && (*work)->trials_->together() && has_root(call.collective)) {
    Call barrier;
    barrier.collective = Collective::barrier;
    SENNIT_RETURN_IF_ERROR(run(barrier));
  }
  std::shared_ptr<const Prepared> prepared;
  if (keep) prepared = (*work)->execution_->shared_prepared();
  (*work)->start(false);
  (*work)->wait(-1);
  Status status = (*work)->finish();
  if (keep && status.ok()) remember_small(call, prepared, (*work)->generation_);
  return status;
}

// What a call that was just made was prepared to, in that generation of plans.
void Communicator::remember_small(const Call& call, const std::shared_ptr<const Prepared>& prepared,
                                  uint64_t generation) {
  const MutexLock lock(mutex_);
  const Request& request = prepared->request;
  const Trials* const trials = trials_.find(request);
  if (generation != generation_ || (trials && !trials->decided())) return;
  auto execution =
      std::make_unique<Execution>(context_->engine(), state_.id(), world_of_position_, prepared);
  std::vector<std::byte> scaled;  // stays empty: custom ops do not go the short way
  fill_buffers(call, request, tree(), rank(), custom_ops_, &scaled, &execution->buffers());
  small_calls_.keep(call, request.in_place, std::move(execution));
}

Status Communicator::run_small(const Call& call, Execution& execution) {
  execution.buffers().input = static_cast<const std::byte*>(call.send);
  execution.buffers().output = static_cast<std::byte*>(call.recv);
  const CallLog::Begun begun = state_.calls().begins(execution.shared_prepared());
  Engine& engine = context_->engine();
  if (begun.undecided) {
    if (std::unique_ptr<Execution> anew =
            planned_anew(begun.seq, execution, PlanCache::Where::host)) {
      engine.start(*anew, begun.seq, false);
      const Status status = run_to_its_end(*anew);
      give_back(std::move(anew));
      return status;
    }
  }
  if (engine.run_small(execution, begun.seq, state_.failed_flag()) && execution.status().ok())
    return {};
  return run_to_its_end(execution);
}

Status Communicator::run_to_its_end(const Execution& execution) {
  Engine& engine = context_->engine();
  // The communicator may have failed before the execution was started: then nobody else cancels it.
  if (state_.failed()) engine.fail_communicator(state_.id(), status());
  engine.wait([&] { return execution.done(); }, -1);
  return result_of(execution);
}

// ---- tuning ----

Result<Plan> Communicator::plan(const Request& request, Planning::Memory memory) const {
  const MutexLock lock(mutex_);
  return planning_.plan(request, memory);
}

Result<Plan> Communicator::plan_by_model(const Request& request, Planning::Memory memory) const {
  const MutexLock lock(mutex_);
  return planning_.plan_by_model(request, memory);
}

const Trials* Communicator::trials(const Call& call) const {
  const MutexLock lock(mutex_);
  return trials_.find(to_request(call));
}

void Communicator::set_effort(Trials::Effort effort) {
  const MutexLock lock(mutex_);
  trials_.set_effort(effort);
}

void Communicator::retime(const Call& call, uint64_t ns) {
  const MutexLock lock(mutex_);
  if (Trials* const trials = trials_.find(to_request(call))) trials->retime(ns);
}

// Null: the call runs the plan as it is.
Result<Trials*> Communicator::trials_of(const Call& call, const Request& request) {
  if (!context_->tunes() || !CallTrials::takes_part(call, size())) return nullptr;
  Trials* const known = trials_.find(request);
  return known ? known : trials_.begin(request, planning_);
}

// When the trials of a request are over, the next call of it first takes the maximum over the ranks
// of every time: all ranks come to it at the same call, and decide alike.
Status Communicator::decide_trials(const Call& call) {
  if (!context_->tunes() || !CallTrials::takes_part(call, size())) return {};
  Request request;
  Trials* trials = nullptr;
  std::vector<double> mine_us;  // a copy, since works may end meanwhile
  {
    const MutexLock lock(mutex_);
    if (!check_call(call, custom_ops_, rank(), size()).ok()) return {};  // prepare() says so
    request = to_request(call);
    trials = trials_.find(request);
    if (!trials || !trials->to_decide()) return {};
    mine_us = trials->times_us();
  }
  std::vector<double> slowest_us(mine_us.size());
  Call maximum;
  maximum.collective = Collective::all_reduce;
  maximum.op = SENNIT_MAX;
  maximum.type = DataType::float64;
  maximum.send = mine_us.data();
  maximum.recv = slowest_us.data();
  maximum.count = slowest_us.size();
  maximum.as_planned = maximum.internal = true;
  SENNIT_RETURN_IF_ERROR(run(maximum));
  const MutexLock lock(mutex_);
  trials->decide(slowest_us);
  const Tuning found = planning_.learn(request, trials->plans()[trials->winner()],
                                       trials->measured_us()[trials->winner()]);
  forget_plans(request.collective);
  if (rank() != 0 || found.empty()) return {};
  if (const std::string path = tuning_path(context_->fabric().fingerprint()); !path.empty())
    if (const Status kept = found.add_to(path); !kept.ok())
      log(LogLevel::warn, "tuning: {}", kept.text());
  return {};
}

void Communicator::calibrate(const CostModel& cost) {
  const MutexLock lock(mutex_);
  planning_.calibrate(cost);
  trials_.restart();
  for (int c = 0; c < kCollectives; c++) forget_plans(static_cast<Collective>(c));
  plans_.clear();  // also what was on trial: other plans have those numbers from now on
}

// What was planned without this knowledge is planned anew.
void Communicator::forget_plans(Collective collective) {
  generation_++;
  plans_.forget(collective);
  small_calls_.forget(collective);
}

// ---- custom ops ----

int Communicator::create_op(const void* scalar, DataType type) {
  const MutexLock lock(mutex_);
  return custom_ops_.create(scalar, type);
}

Result<int> Communicator::create_op_in_stream(const void* scalar, DataType type) {
  const MutexLock lock(mutex_);
  if (!target_.accelerator)
    return invalid(
        "the communicator has no stream, in whose order the scalar would be read: call "
        "sennit_comm_set_stream first");
  const Result<MemoryKind> kind = target_.accelerator->look(scalar);
  if (!kind) return kind.status();
  if (*kind == MemoryKind::plain)
    return invalid(
        fmt::format("the scalar at {} is in the host's own memory, which no device "
                    "reaches: call sennit_op_create_premul_sum, which copies it",
                    scalar));
  return custom_ops_.create_in_stream(scalar, *kind, type);
}

Status Communicator::destroy_op(int op) {
  const MutexLock lock(mutex_);
  return custom_ops_.destroy(op);
}

// ---- its life ----

namespace {

// What a rank of a split tells the others, as three numbers of an all-gather.
struct Choice {
  int32_t color, key;
  int32_t drawn;  // the giver's: the number of the communicators to be made
};
constexpr size_t kChoiceNumbers = sizeof(Choice) / sizeof(int32_t);

// The ranks that chose a color, by key, then by rank; the colors in order. `own`: which is `color`.
std::vector<std::vector<int>> groups_of(const std::vector<Choice>& choices, int color,
                                        size_t* own) {
  std::map<int, std::vector<std::pair<int, int>>> chosen;  // key, rank
  for (size_t r = 0; r < choices.size(); r++)
    if (choices[r].color != SENNIT_NO_COLOR)
      chosen[choices[r].color].emplace_back(choices[r].key, static_cast<int>(r));
  std::vector<std::vector<int>> groups;
  for (auto& [of, members] : chosen) {
    if (of == color) *own = groups.size();
    std::sort(members.begin(), members.end());
    std::vector<int>& ranks = groups.emplace_back();
    for (const auto& [key, rank] : members) ranks.push_back(rank);
  }
  return groups;
}

}  // namespace

Status Communicator::split(int color, int key, std::shared_ptr<Communicator>* result) {
  if (color < 0 && color != SENNIT_NO_COLOR) {
    Status off = invalid(fmt::format("color {}: expected 0 or more, or SENNIT_NO_COLOR", color));
    refuses(off);
    return off;
  }
  const Registry::Making making(context_->registry());
  // One member hands out the number: not the one of another split that runs at the same time,
  // whoever makes it. Which member it is goes round, and begins beside the one that handed out this
  // communicator's own.
  uint32_t turn = state_.id() - 1;
  {
    const MutexLock lock(mutex_);
    turn += splits_++;
  }
  const int giver = static_cast<int>(turn % static_cast<uint32_t>(size()));
  const uint32_t drawn = giver == rank() ? context_->draw_communicator_number() : 0;
  const Choice mine{color, key, static_cast<int32_t>(drawn)};
  std::vector<Choice> all(static_cast<size_t>(size()));
  Call call;
  call.collective = Collective::all_gather;
  call.send = &mine;
  call.recv = all.data();
  call.count = kChoiceNumbers;
  call.type = DataType::int32;
  call.as_planned = call.internal = true;
  SENNIT_RETURN_IF_ERROR(run(call));
  const auto id = static_cast<uint32_t>(all[static_cast<size_t>(giver)].drawn);
  if (id == 0)
    return {SENNIT_OUT_OF_RESOURCES,
            fmt::format("split of communicator {}: rank {} has handed out all its numbers for "
                        "communicators",
                        state_.id(), state_.world_rank(giver))};
  if (color == SENNIT_NO_COLOR) return {};
  size_t own = 0;
  const std::vector<std::vector<int>> groups = groups_of(all, color, &own);
  std::vector<int> members;
  for (const int rank : groups[own]) members.push_back(state_.world_rank(rank));
  *result = create(context_, std::move(members), id,
                   tree_of_group(tree(), groups, own, context_->concurrency()));
  return {};
}

GroupChannel& Communicator::channel() {
  const MutexLock lock(channel_mutex_);
  if (!channel_) channel_ = std::make_unique<GroupChannel>(*context_, state_);
  return *channel_;
}

Status Communicator::create_group(const std::vector<int>& ranks, int tag,
                                  std::shared_ptr<Communicator>* result) {
  if (Status off = GroupChannel::check(state_, ranks, tag); !off.ok()) {
    // Who is not in the list is missed by nobody with the same list: programs let all ranks call.
    if (std::find(ranks.begin(), ranks.end(), rank()) != ranks.end()) refuses_group(off);
    return off;
  }
  const Registry::Making making(context_->registry());
  const Result<uint32_t> id = channel().agree_on_number(ranks, tag);
  if (!id) return id.status();
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(state_.world_rank(rank));
  Result<TierTree> tree = tree_of(*context_, members);
  if (!tree) return tree.status();
  std::vector<int> everyone(members.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  // Of siblings nobody has told its members, but it may be told of groups like itself.
  const int groups = context_->concurrency().siblings ? 1 : context_->concurrency().groups;
  *result = create(context_, std::move(members), *id,
                   tree_of_group(*tree, {everyone}, 0, {.siblings = false, .groups = groups}));
  return {};
}

Status Communicator::finalize() {
  SENNIT_RETURN_IF_ERROR(status());
  leave_graphs();
  // Whether somebody has waited for them already or not: their results stay with their handles.
  Status first;
  while (Work* const work = outstanding()) {
    work->wait(-1);
    const Status ended = work->finish();
    if (first.ok()) first = ended;
  }
  Call barrier;
  barrier.collective = Collective::barrier;
  // also where a call of this rank alone was wrong: the others come, too
  const Status met = run(barrier);
  if (met.ok()) state_.set_over();
  return met.ok() ? first : met;
}

}  // namespace sennit
