// small_call.cpp: blocking calls, and the short way for those that are small and made again and
// again.
//
// A call that differs from an earlier one in its buffers only needs no checks of its arguments, no
// Request and no Work: its Execution is kept here, compiled (engine/small.cpp). Sixteen places, by
// a hash of the call; a call whose place is taken by another takes it over. Where the short way is
// not possible, the place remembers that.
#include "api/communicator.hpp"

namespace sennit {
namespace {

constexpr uint64_t kSmallBytes = 64 * 1024;  // of the call; transports set the limit of a message

// Whether a call like this may go the short way at all.
bool qualifies(const Call& call) {
  if (call.collective == Collective::barrier) return true;
  if (call.vector_variant || call.collective == Collective::send_recv) return false;
  return call.op < SENNIT_OP_CUSTOM_BASE && call.send && call.recv && call.count > 0 &&
         call.count * type_bytes(call.type) <= kSmallBytes;
}

bool same(const Call& a, const Call& b) {
  return a.count == b.count && a.collective == b.collective && a.type == b.type && a.op == b.op &&
         a.root == b.root;
}

}  // namespace

Communicator::SmallCall* Communicator::small_call(const Call& call) {
  if (call.count > kSmallBytes || !qualifies(call)) return nullptr;
  const uint64_t hash = (call.count * 31 + static_cast<uint64_t>(call.collective) * 7 +
                         static_cast<uint64_t>(call.type) * 3 + static_cast<uint64_t>(call.op)) *
                        0x9e3779b97f4a7c15ull;
  return &small_calls_[hash >> 60];
}

Status Communicator::run(const Call& call) {
  SmallCall* small = small_call(call);
  const bool known = small && same(small->call, call) && small->in_place == is_in_place(call);
  if (known && small->execution && !failed_.load(std::memory_order_acquire))
    return run_small(call, *small);
  Result<std::unique_ptr<Work>> work = prepare(call);
  if (!work) return work.status();
  // A broadcast's root is done when its messages are under way, and who comes late finds them
  // there: only from a common beginning does the slowest rank's time say how long the data took.
  if ((*work)->sample_ >= 0 && (*work)->trials_->together() && has_root(call.collective)) {
    Call barrier;
    barrier.collective = Collective::barrier;
    SENNIT_RETURN_IF_ERROR(run(barrier));
  }
  (*work)->start(false);
  (*work)->wait(-1);
  Status status = (*work)->finish();
  const Trials* trials = small && !known && status.ok() ? this->trials(call) : nullptr;
  if (small && !known && status.ok() && (!trials || trials->decided()))
    remember_small(call, *small);
  return status;
}

// The call was just made, so that its plan is the first in the cache.
void Communicator::remember_small(const Call& call, SmallCall& small) {
  const CacheEntry& entry = cache_.front();
  auto execution =
      std::make_unique<Execution>(context_->engine(), id_, world_of_position_, entry.prepared);
  Work unused;
  fill_buffers(call, entry.key.request, unused, &execution->buffers());
  const auto guard = context_->engine().lock();  // scratch is the engine's
  if (!execution->compile_small()) execution.reset();
  small.call = call;
  small.call.send = nullptr;
  small.call.recv = nullptr;
  small.in_place = entry.key.request.in_place;
  small.execution = std::move(execution);
}

Status Communicator::run_small(const Call& call, SmallCall& small) {
  Execution& execution = *small.execution;
  execution.buffers().input = static_cast<const std::byte*>(call.send);
  execution.buffers().output = static_cast<std::byte*>(call.recv);
  const uint32_t seq = next_seq_++;
  log_call(seq, execution.shared_prepared());
  Engine& engine = context_->engine();
  if (engine.run_small(execution, seq, failed_) && execution.status().ok()) {
    mark_finished(seq);
    return {};
  }
  // The communicator may have failed before the execution was started: then nobody else cancels it.
  if (failed_.load(std::memory_order_acquire)) engine.fail_communicator(id_, status());
  engine.wait([&] { return execution.done(); }, -1);
  return finish_call(execution);
}

}  // namespace sennit
