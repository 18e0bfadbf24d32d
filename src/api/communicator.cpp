// communicator.cpp: see api/communicator.hpp.
#include "api/communicator.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/log.hpp"
#include "record/notes.hpp"

namespace sennit {

Result<std::shared_ptr<Communicator>> Communicator::create(std::shared_ptr<Context> context,
                                                           std::vector<int> members, uint32_t id) {
  Result<TierTree> tree = GroupMaker::tree_of(*context, members);
  if (!tree) return tree.status();
  return create(std::move(context), NewCommunicator{std::move(members), id, *std::move(tree)});
}

std::shared_ptr<Communicator> Communicator::create(std::shared_ptr<Context> context,
                                                   NewCommunicator of) {
  std::shared_ptr<Communicator> made(new Communicator(std::move(context), std::move(of)));
  made->context_->registry().add(&made->state_);
  made->context_->replanning().added(made->state_);
  return made;
}

Communicator::Communicator(std::shared_ptr<Context> context, NewCommunicator of)
    : context_(std::move(context)),
      state_(of.id, std::move(of.members), context_->rank(), context_->engine(),
             context_->control()),
      preparation_(
          state_, context_->engine(), std::move(of.tree),
          {context_->plan_options(), context_->may_tune(), context_->tunes(), context_->tuning()}),
      stream_(state_.rank()),
      starter_(state_, preparation_, context_->engine(), context_->control()),
      started_(state_, context_->engine()),
      groups_(*context_, state_, preparation_.tree()) {
  context_->engine().recording().note(encode(CommunicatorNote{id(), members()}),
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
  groups_.open_channel();
  state_.calls().refuses(CallLog::Refused::group, why.text());
}

Result<std::unique_ptr<Work>> Communicator::prepare_work(const Call& given_call) {
  Call call = given_call;
  const Result<StreamTarget> target = stream_.target_of(call);
  if (!target) return target.status();
  call.on_device = target->accelerator != nullptr;
  call.stream = target->stream;
  call.in_graph = target->in_graph;
  call.as_planned |= call.on_device;
  SENNIT_RETURN_IF_ERROR(decide_trials(call));
  Result<Preparation::Ready> ready = preparation_.prepare(call, *target);
  if (!ready) return ready.status();
  return std::make_unique<Work>(shared_from_this(), call, *target, *std::move(ready));
}

Status Communicator::set_stream(void* stream) {
  const Result<Accelerator*> device = cuda_device_of(stream);
  if (!device) return device.status();
  return stream_.set(*device, stream);
}

Result<int> Communicator::create_op_in_stream(const void* scalar, DataType type) {
  const Result<MemoryKind> kind = stream_.kind_of_scalar(scalar);
  if (!kind) return kind.status();
  return preparation_.create_op_in_stream(scalar, *kind, type);
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

void Communicator::start(Work& work, bool nonblocking) {
  if (!work.is_captured()) started_.add(work);
  starter_.start(work, nonblocking);
}

Status Communicator::end(Work& work) {
  if (work.is_captured()) {
    starter_.leave_graph(work);
    return {};
  }
  const Preparation::Ready& ready = work.ready_;
  const Status result =
      ready.execution ? result_of(*ready.execution) : starter_.end_self_message(work);
  started_.remove(work);
  if (!ready.execution) return result;
  if (ready.sample >= 0 && result.ok())
    preparation_.took(*ready.trials, ready.sample, ready.execution->finished_ns - work.started_ns_);
  preparation_.give_back(std::move(work.ready_.execution));
  return result;
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
  if (stream_.is_set()) {
    Result<std::unique_ptr<Work>> work = prepare(call);
    if (!work) return work.status();
    if ((*work)->target().accelerator) return enqueue(*std::move(work));
    (*work)->start(false);
    (*work)->wait(-1);
    return (*work)->finish();
  }
  bool keep = false;  // for the short way
  if (const SmallCalls::Claim kept = preparation_.claim_small(call)) {
    keep = !kept->holds(call, rank());
    if (!keep && kept->execution && !state_.failed()) return run_small(call, *kept->execution);
  }
  Result<std::unique_ptr<Work>> work = prepare(call);
  if (!work) return work.status();
  const Preparation::Ready& ready = (*work)->ready_;
  // A broadcast's root is done when its messages are under way, and who comes late finds them
  // there: only from a common beginning does the slowest rank's time say how long the data took.
  if (ready.sample >= 0 && ready.trials->together() && has_root(call.collective)) {
    Call barrier;
    barrier.collective = Collective::barrier;
    SENNIT_RETURN_IF_ERROR(run(barrier));
  }
  std::shared_ptr<const Prepared> prepared;
  if (keep) prepared = ready.execution->shared_prepared();
  (*work)->start(false);
  (*work)->wait(-1);
  Status status = (*work)->finish();
  if (keep && status.ok()) preparation_.remember_small(call, prepared, ready.generation);
  return status;
}

Status Communicator::run_small(const Call& call, Execution& execution) {
  execution.buffers().input = static_cast<const std::byte*>(call.send);
  execution.buffers().output = static_cast<std::byte*>(call.recv);
  const CallLog::Begun begun = state_.calls().begins(execution.shared_prepared());
  Engine& engine = context_->engine();
  if (begun.undecided) {
    if (std::unique_ptr<Execution> anew = starter_.planned_anew(begun.seq, execution, {})) {
      engine.start(*anew, begun.seq, false);
      const Status status = run_to_its_end(*anew);
      preparation_.give_back(std::move(anew));
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

// The next call of a request whose trials are over does this first: all ranks come to it at the
// same call, and decide alike.
Status Communicator::decide_trials(const Call& call) {
  const std::optional<Preparation::Vote> vote = preparation_.vote(call);
  if (!vote) return {};
  std::vector<double> slowest_us(vote->mine_us.size());
  Call maximum;
  maximum.collective = Collective::all_reduce;
  maximum.op = SENNIT_MAX;
  maximum.type = DataType::float64;
  maximum.send = vote->mine_us.data();
  maximum.recv = slowest_us.data();
  maximum.count = slowest_us.size();
  maximum.as_planned = maximum.internal = true;
  SENNIT_RETURN_IF_ERROR(run(maximum));
  const Tuning found = preparation_.decide(*vote, slowest_us);
  if (rank() != 0 || found.empty()) return {};
  if (const std::string path = tuning_path(context_->fabric().fingerprint()); !path.empty())
    if (const Status kept = found.add_to(path); !kept.ok())
      log(LogLevel::warn, "tuning: {}", kept.text());
  return {};
}

// ---- its life ----

Status Communicator::split(int color, int key, std::shared_ptr<Communicator>* result) {
  if (color < 0 && color != SENNIT_NO_COLOR) {
    Status off = invalid(fmt::format("color {}: expected 0 or more, or SENNIT_NO_COLOR", color));
    refuses(off);
    return off;
  }
  const Registry::Making making(context_->registry());
  Result<std::optional<NewCommunicator>> group =
      groups_.split(color, key, [this](const void* mine, void* all, size_t numbers) {
        Call call;
        call.collective = Collective::all_gather;
        call.send = mine;
        call.recv = all;
        call.count = numbers;
        call.type = DataType::int32;
        call.as_planned = call.internal = true;
        return run(call);
      });
  if (!group) return group.status();
  if (*group) *result = create(context_, **std::move(group));
  return {};
}

Status Communicator::create_group(const std::vector<int>& ranks, int tag,
                                  std::shared_ptr<Communicator>* result) {
  if (Status off = GroupChannel::check(state_, ranks, tag); !off.ok()) {
    // Who is not in the list is missed by nobody with the same list: programs let all ranks call.
    if (std::find(ranks.begin(), ranks.end(), rank()) != ranks.end()) refuses_group(off);
    return off;
  }
  const Registry::Making making(context_->registry());
  Result<NewCommunicator> group = groups_.of_ranks(ranks, tag);
  if (!group) return group.status();
  *result = create(context_, *std::move(group));
  return {};
}

Status Communicator::finalize() {
  SENNIT_RETURN_IF_ERROR(status());
  started_.leave_graphs();
  // Whether somebody has waited for them already or not: their results stay with their handles.
  Status first;
  while (Work* const work = started_.any()) {
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
