// preparation.cpp: see api/preparation.hpp.
#include "api/preparation.hpp"

#include <utility>

#include "record/notes.hpp"

namespace sennit {
namespace {

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

PlanCache::Where where_of(const StreamTarget& target) {
  if (!target.accelerator) return PlanCache::Where::host;
  return target.in_graph ? PlanCache::Where::graph : PlanCache::Where::device;
}

}  // namespace

Preparation::Preparation(const CommunicatorState& state, Engine& engine, TierTree tree,
                         Settings settings)
    : state_(state),
      engine_(engine),
      tunes_(settings.tunes),
      small_calls_(engine),
      planning_(std::move(tree), settings.options, settings.may_tune, std::move(settings.tuning)),
      plans_(engine) {
  for (const int32_t rank : this->tree().rank_of_position)
    world_of_position_.push_back(state_.world_rank(rank));
}

// ---- calls ----

Result<Preparation::Ready> Preparation::prepare(const Call& call, const StreamTarget& target) {
  const MutexLock lock(mutex_);
  SENNIT_RETURN_IF_ERROR(check_call(call, custom_ops_, state_.rank(), state_.size()));
  SENNIT_RETURN_IF_ERROR(state_.status());
  Ready ready;
  if (call.collective == Collective::send_recv && call.root == state_.rank()) return ready;
  PlanCache::Key key{to_request(call)};
  key.where = where_of(target);
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
    ready.trials = *trials;
    ready.sample = turn.sample;
  }
  const Result<PlanCache::Entry*> found = find_or_prepare(std::move(key), given);
  if (!found) return found.status();
  PlanCache::Entry& entry = **found;
  ready.execution = idle_execution(entry, target);
  ready.generation = generation_;
  ready.execution->timed = ready.sample >= 0;
  fill_buffers(call, entry.key.request, tree(), state_.rank(), custom_ops_, &ready.scaled,
               &ready.execution->buffers());
  return ready;
}

Result<PlanCache::Entry*> Preparation::find_or_prepare(PlanCache::Key key, const Plan* given) {
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
  note(key.request, (*prepared)->plan);
  std::shared_ptr<const Prepared> made = made_where(*std::move(prepared), key.where);
  return &plans_.add(std::move(key), std::move(made));
}

// Once a plan, for who reads the rank's recording.
void Preparation::note(const Request& request, const Plan& plan) {
  if (noted_plans_.size() >= kMostNotedPlans || !noted_plans_.insert(plan.hash).second) return;
  const PlanNote note{state_.id(),
                      plan.hash,
                      request,
                      plan.algorithm,
                      plan.parameters,
                      plan.predicted_ns,
                      planning_.version()->slow};
  engine_.recording().note(encode(note), Recording::NoteKind::plan);
}

std::unique_ptr<Execution> Preparation::idle_execution(PlanCache::Entry& entry,
                                                       const StreamTarget& target) {
  if (entry.idle.empty()) return new_execution(entry.prepared, target);
  std::unique_ptr<Execution> execution = std::move(entry.idle.back());
  entry.idle.pop_back();
  return execution;
}

std::unique_ptr<Execution> Preparation::new_execution(std::shared_ptr<const Prepared> prepared,
                                                      const StreamTarget& target) const {
  return std::make_unique<Execution>(engine_, state_.id(), world_of_position_, std::move(prepared),
                                     target.accelerator);
}

Result<std::unique_ptr<Execution>> Preparation::prepare_under(const FabricVersionPointer& version,
                                                              const Execution& made,
                                                              const StreamTarget& target) {
  const MutexLock lock(mutex_);
  if (version->number > planning_.version()->number) {
    planning_.use(version);
    forget_all_plans();
  }
  if (made.prepared().fabric_version == version->number) return std::unique_ptr<Execution>();
  return planned_by(version, made.prepared().request, target);
}

Result<std::unique_ptr<Execution>> Preparation::planned_by(const FabricVersionPointer& version,
                                                           const Request& request,
                                                           const StreamTarget& target) {
  const FabricVersionPointer current = planning_.version();
  const PlanCache::Where where = where_of(target);
  if (version->number == current->number) {
    PlanCache::Key key{request};
    key.where = where;
    const Result<PlanCache::Entry*> entry = find_or_prepare(std::move(key), nullptr);
    if (!entry) return entry.status();
    return idle_execution(**entry, target);
  }
  // Another thread has made a call since that is of the next version already.
  planning_.use(version);
  const Result<std::shared_ptr<const Prepared>> prepared =
      planning_.prepare(request, memory_of(where), nullptr, position());
  planning_.use(current);
  if (!prepared) return prepared.status();
  return new_execution(made_where(*prepared, where), target);
}

void Preparation::give_back(std::unique_ptr<Execution> execution) {
  const MutexLock lock(mutex_);
  plans_.give_back(std::move(execution));
}

void Preparation::remember_small(const Call& call, const std::shared_ptr<const Prepared>& prepared,
                                 uint64_t generation) {
  const MutexLock lock(mutex_);
  const Request& request = prepared->request;
  const Trials* const trials = trials_.find(request);
  if (generation != generation_ || (trials && !trials->decided())) return;
  std::unique_ptr<Execution> execution = new_execution(prepared, {});
  std::vector<std::byte> scaled;  // stays empty: custom ops do not go the short way
  fill_buffers(call, request, tree(), state_.rank(), custom_ops_, &scaled, &execution->buffers());
  small_calls_.keep(call, request.in_place, std::move(execution));
}

// ---- ops ----

int Preparation::create_op(const void* scalar, DataType type) {
  const MutexLock lock(mutex_);
  return custom_ops_.create(scalar, type);
}

int Preparation::create_op_in_stream(const void* scalar, MemoryKind kind, DataType type) {
  const MutexLock lock(mutex_);
  return custom_ops_.create_in_stream(scalar, kind, type);
}

Status Preparation::destroy_op(int op) {
  const MutexLock lock(mutex_);
  return custom_ops_.destroy(op);
}

// ---- planning and tuning ----

Result<Plan> Preparation::plan(const Request& request, Planning::Memory memory) const {
  const MutexLock lock(mutex_);
  return planning_.plan(request, memory);
}

Result<Plan> Preparation::plan_by_model(const Request& request, Planning::Memory memory) const {
  const MutexLock lock(mutex_);
  return planning_.plan_by_model(request, memory);
}

const Trials* Preparation::trials(const Call& call) const {
  const MutexLock lock(mutex_);
  return trials_.find(to_request(call));
}

// Null: the call runs the plan as it is.
Result<Trials*> Preparation::trials_of(const Call& call, const Request& request) {
  if (!is_tried(call)) return nullptr;
  Trials* const known = trials_.find(request);
  return known ? known : trials_.begin(request, planning_);
}

void Preparation::took(Trials& trials, int sample, uint64_t ns) {
  const MutexLock lock(mutex_);
  if (!trials.decided()) trials.took(sample, ns);
}

void Preparation::retime(const Call& call, uint64_t ns) {
  const MutexLock lock(mutex_);
  if (Trials* const trials = trials_.find(to_request(call))) trials->retime(ns);
}

void Preparation::set_effort(Trials::Effort effort) {
  const MutexLock lock(mutex_);
  trials_.set_effort(effort);
}

std::optional<Preparation::Vote> Preparation::vote(const Call& call) {
  if (!is_tried(call)) return std::nullopt;
  const MutexLock lock(mutex_);
  if (!check_call(call, custom_ops_, state_.rank(), state_.size()).ok()) return std::nullopt;
  Vote vote{to_request(call), nullptr, {}};
  vote.trials = trials_.find(vote.request);
  if (!vote.trials || !vote.trials->to_decide()) return std::nullopt;
  vote.mine_us = vote.trials->times_us();  // a copy, since works may end meanwhile
  return vote;
}

Tuning Preparation::decide(const Vote& vote, const std::vector<double>& slowest_us) {
  const MutexLock lock(mutex_);
  Trials& trials = *vote.trials;
  trials.decide(slowest_us);
  Tuning found = planning_.learn(vote.request, trials.plans()[trials.winner()],
                                 trials.measured_us()[trials.winner()]);
  forget_plans(vote.request.collective);
  return found;
}

void Preparation::calibrate(const CostModel& cost) {
  const MutexLock lock(mutex_);
  planning_.calibrate(cost);
  trials_.restart();
  forget_all_plans();
  plans_.clear();  // also what was on trial: other plans have those numbers from now on
}

// What was planned without this knowledge is planned anew.
void Preparation::forget_plans(Collective collective) {
  generation_++;
  plans_.forget(collective);
  small_calls_.forget(collective);
}

void Preparation::forget_all_plans() {
  for (int c = 0; c < kCollectives; c++) forget_plans(static_cast<Collective>(c));
}

}  // namespace sennit
