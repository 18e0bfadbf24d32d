#include "api/communicator.hpp"
#include "plan/planner.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.hpp"
#include "collectives/algorithm.hpp"

namespace sennit {

std::string Communicator::describe_request(const Request& request) const {
  std::string text(name(request.collective));
  if (request.collective == Collective::barrier) return text;
  if (request.vector_variant) text += "_v";
  if (!request.vector_variant)
    text += fmt::format(" count {}", request.count);
  else if (!request.counts.empty())
    text += fmt::format(" counts {}..{}", request.counts.front(), request.counts.back());
  text += fmt::format(" {}", name(request.type));
  if (request.reduces()) text += fmt::format(" {}", name(request.op));
  if (has_root(request.collective))
    text += fmt::format(" root {}", tree_.rank_of_position[static_cast<size_t>(request.root)]);
  return text;
}

Result<std::shared_ptr<Communicator>> Communicator::create(std::shared_ptr<Context> context,
                                                           std::vector<int> members, uint32_t id) {
  std::shared_ptr<Communicator> c(new Communicator(std::move(context), std::move(members), id));
  const auto me = std::find(c->members_.begin(), c->members_.end(), c->context_->rank());
  SENNIT_CHECK(me != c->members_.end());
  c->rank_ = static_cast<int>(me - c->members_.begin());
  std::vector<Placement> placements;
  for (const int world : c->members_) placements.push_back(c->context_->placement(world));
  Result<TierTree> tree = contract(c->context_->fabric(), placements);
  if (!tree) return tree.status();
  c->tree_ = *std::move(tree);
  c->tree_fingerprint_ = c->tree_.fingerprint();
  c->tuning_ = c->context_->tuning();
  for (const int32_t rank : c->tree_.rank_of_position)
    c->world_of_position_.push_back(c->members_[static_cast<size_t>(rank)]);
  c->context_->add(c.get());
  return c;
}

Communicator::~Communicator() {
  context_->remove(this);
  // Executions give their scratch back to the engine.
  const auto guard = context_->engine().lock();
  cache_.clear();
  for (SmallCall& small : small_calls_) small.execution.reset();
}

bool Communicator::has(int world_rank) const {
  return std::find(members_.begin(), members_.end(), world_rank) != members_.end();
}

Result<Plan> Communicator::plan(const Request& request) const {
  Result<Plan> plan = plan_by_model(request);
  const Tuned* tuned =
      context_->may_tune() ? tuning_.find(tree_fingerprint_, request, size()) : nullptr;
  if (plan && tuned) apply(*tuned, request, tree_, &*plan);
  return plan;
}

Result<Plan> Communicator::plan_by_model(const Request& request) const {
  Request shared = request;
  shared.in_place = false;  // a matter of each rank's own; the plan must be the same everywhere
  PlanOptions options = context_->plan_options();
  const Algorithm* forced = options.algorithm.empty() ? nullptr : find_algorithm(options.algorithm);
  if (forced && !forced->applies(tree_, shared)) options.algorithm.clear();
  if (!options.reproducible) tuning_.calibrate(tree_, &options.cost);
  return make_plan(shared, tree_, options);
}

// ---- state ----

Status Communicator::status() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard guard(state_mutex_);
  return status_;
}

void Communicator::fail(const Status& status) {
  {
    const std::lock_guard guard(state_mutex_);
    if (!status_.ok()) return;
    status_ = status;
    failed_.store(true, std::memory_order_release);
  }
  context_->engine().fail_communicator(id_, status);
}

void Communicator::fail_and_tell(const Status& status) {
  if (!this->status().ok()) return;
  if (status.kind() == SENNIT_MISMATCH)
    context_->control().fail(id_, status);
  else
    context_->control().abort(id_, status.text());
  fail(status);
}

void Communicator::peers_failed(const std::vector<int>& world_ranks, const Status& status) {
  std::vector<int> mine;
  for (size_t r = 0; r < members_.size(); r++)
    if (std::binary_search(world_ranks.begin(), world_ranks.end(), members_[r]))
      mine.push_back(static_cast<int>(r));
  if (mine.empty()) return;
  {
    const std::lock_guard guard(state_mutex_);
    failed_ranks_ = mine;
  }
  fail(status);
}

std::vector<int> Communicator::failed_ranks() const {
  const std::lock_guard guard(state_mutex_);
  return failed_ranks_;
}

void Communicator::abort() {
  fail(Status(SENNIT_ABORTED, fmt::format("communicator {} was aborted by rank {}, this one", id_,
                                          members_[static_cast<size_t>(rank_)])));
  context_->control().abort(id_, "");
}

void Communicator::log_call(uint32_t seq, const std::shared_ptr<const Prepared>& prepared) {
  const std::lock_guard guard(state_mutex_);
  LoggedCall& call = calls_[seq % calls_.size()];
  call.seq = seq;
  if (call.prepared != prepared) call.prepared = prepared;
  call.finished.store(false, std::memory_order_relaxed);
}

// Only the user's thread writes calls_, so it may look without the lock.
void Communicator::mark_finished(uint32_t seq) {
  LoggedCall& call = calls_[seq % calls_.size()];
  if (call.seq == seq) call.finished.store(true, std::memory_order_relaxed);
}

bool Communicator::describe(uint32_t seq, CallDescriptor* out) const {
  const std::lock_guard guard(state_mutex_);
  const LoggedCall* found = &calls_[seq % calls_.size()];
  if (found->seq != seq) {
    // Not reached yet, or forgotten: tell of the latest instead.
    for (const LoggedCall& call : calls_)
      if (call.seq > found->seq || found->seq > seq + calls_.size()) found = &call;
  }
  if (found->seq == 0) return false;
  *out = {id_, found->seq, found->prepared->signature, found->finished,
          found->prepared->description};
  return true;
}

// ---- operations ----

Result<int> Communicator::create_premul_sum(const void* scalar, DataType type) {
  CustomOp op{type, {}};
  const auto* bytes = static_cast<const std::byte*>(scalar);
  std::copy(bytes, bytes + type_bytes(type), op.scalar.begin());
  custom_ops_[next_custom_op_] = op;
  return next_custom_op_++;
}

Status Communicator::destroy_op(int op) {
  if (custom_ops_.erase(op) == 0)
    return invalid(fmt::format("op {}: not created on this communicator", op));
  return {};
}

// ---- split and finalize ----

Status Communicator::split(int color, int key, std::shared_ptr<Communicator>* result) {
  if (color < 0 && color != SENNIT_NO_COLOR)
    return invalid(fmt::format("color {}: expected 0 or more, or SENNIT_NO_COLOR", color));
  const Context::Making making(*context_);
  // One member hands out the number: not the one of another split that runs at the same time,
  // whoever makes it. Which member it is goes round, and begins beside the one that handed out this
  // communicator's own.
  const int giver = static_cast<int>((id_ - 1 + splits_++) % static_cast<uint32_t>(size()));
  const uint32_t drawn = giver == rank_ ? context_->draw_communicator_number() : 0;
  const int32_t mine[3] = {color, key, static_cast<int32_t>(drawn)};
  std::vector<int32_t> all(3 * members_.size());
  Call call;
  call.collective = Collective::all_gather;
  call.send = mine;
  call.recv = all.data();
  call.count = 3;
  call.type = DataType::int32;
  call.as_planned = true;
  SENNIT_RETURN_IF_ERROR(run(call));
  std::vector<std::pair<int, int>> chosen;  // key, rank
  for (int r = 0; r < size(); r++) {
    const int32_t* other = &all[3 * static_cast<size_t>(r)];
    if (other[0] == color) chosen.emplace_back(other[1], r);
  }
  const auto id = static_cast<uint32_t>(all[3 * static_cast<size_t>(giver) + 2]);
  if (id == 0)
    return {
        SENNIT_OUT_OF_RESOURCES,
        fmt::format(
            "split of communicator {}: rank {} has handed out all its numbers for communicators",
            id_, members_[static_cast<size_t>(giver)])};
  if (color == SENNIT_NO_COLOR) return {};
  std::sort(chosen.begin(), chosen.end());
  std::vector<int> members;
  for (const auto& [k, r] : chosen) members.push_back(members_[static_cast<size_t>(r)]);
  Result<std::shared_ptr<Communicator>> made = create(context_, std::move(members), id);
  if (!made) return made.status();
  *result = *std::move(made);
  return {};
}

Status Communicator::finalize() {
  SENNIT_RETURN_IF_ERROR(status());
  // Whether somebody has waited for them already or not: their results stay with their handles.
  Status first;
  while (!outstanding_.empty()) {
    Work& work = *outstanding_.back();
    work.wait(-1);
    const Status ended = work.finish();
    if (first.ok()) first = ended;
  }
  Call barrier;
  barrier.collective = Collective::barrier;
  // also where a call of this rank alone was wrong: the others come, too
  const Status met = run(barrier);
  return met.ok() ? first : met;
}

}  // namespace sennit
