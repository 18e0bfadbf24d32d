// small.cpp: the short way of small blocking calls: what Execution does when every message is in
// one piece and small enough for Transport::send_now and recv_now.
//
// The program's steps are turned once into addresses relative to the input, the output and the
// arena. A call then sends, polls the peers' messages straight out of the transport, and reduces:
// no requests, no completions, no queues. Lane 0's dependencies are kept as in the general way, so
// at any point leave_small() can hand the steps that remain over to it: when a peer is late, or a
// transport declines. Local steps on a few bytes carry the time of the message before them, which
// saves reading the clock.
#include <algorithm>
#include <cstring>

#include "engine/engine.hpp"
#include "engine/execution.hpp"
#include "reduce/reduce.hpp"

namespace sennit {
namespace {

constexpr size_t kMostSteps = 64;
constexpr size_t kUntimedBytes = 256;  // local steps up to this are not timed by themselves

}  // namespace

// Where the operand lies; false if it is not in one piece.
bool Execution::place_small(const Operand& operand, SmallPlace* place, size_t* bytes) {
  std::vector<Segment> segments;
  *bytes = locate(lanes_[0], operand, &segments);
  if (segments.size() > 1) return false;
  *place = {};
  if (segments.empty()) return true;
  const std::byte* base = operand.buffer == Buffer::input    ? buffers_.input
                          : operand.buffer == Buffer::output ? buffers_.output
                                                             : lanes_[0].arena;
  *place = {operand.buffer, segments[0].data - base};
  return true;
}

bool Execution::compile_small() {
  if (chunks_ != 1 || point_to_point_ || !counts_shared_ || prepared_->request.vector_variant)
    return false;
  if (program_.steps.empty() || program_.steps.size() > kMostSteps) return false;
  Lane& lane = lanes_[0];
  lane.chunk = {0, 1};
  if (!program_.slots.empty() && !lay_out_slots(lane)) return false;
  small_.assign(program_.steps.size(), {});
  small_sources_.clear();
  for (size_t i = 0; i < program_.steps.size(); i++) {
    const Step& step = program_.steps[i];
    SmallStep& small = small_[i];
    const auto sources = program_.sources_of(step);
    const bool message = step.kind == StepKind::send || step.kind == StepKind::recv;
    size_t bytes = 0;
    if (step.kind != StepKind::send && !place_small(step.target, &small.target, &bytes))
      return false;
    small.first_source = static_cast<uint32_t>(small_sources_.size());
    for (const Operand& source : sources) {
      SmallPlace place;
      if (!place_small(source, &place, &bytes)) return false;
      small_sources_.push_back(place);
    }
    if (message) {
      const int peer = world_of_position_[static_cast<size_t>(step.peer)];
      small.transport = engine_.transport(peer);
      if (!small.transport || bytes > small.transport->now_bytes()) return false;
      small.message = {peer, {comm_, 0, 0, step.tag}, prepared_->signature, nullptr, bytes};
      const Operand& what = step.kind == StepKind::send ? sources[0] : step.target;
      small.nothing = bytes == 0 && what.ranges > 0 && skip_empty_;
    }
    small.bytes = static_cast<uint32_t>(bytes);
  }
  small_start_ = prepared_->ready_at_start;
  std::stable_partition(small_start_.begin(), small_start_.end(),
                        [&](uint32_t step) { return program_.steps[step].kind == StepKind::send; });
  return true;
}

void Execution::start_small(uint32_t seq) {
  seq_ = seq;
  point_to_point_ = false;
  status_ = {};
  done_.store(false, std::memory_order_relaxed);
  chunks_left_ = 1;
  outstanding_ = 0;
  Lane& lane = lanes_[0];
  lane.remaining = static_cast<uint32_t>(program_.steps.size());
  lane.deps = prepared_->initial_deps;
  small_pending_.clear();
  small_declined_.clear();
  small_posted_ns_ = small_now_ns_ = engine_.trace().now();
  for (const uint32_t step : small_start_) small_ready(step);
  small_pump();
}

bool Execution::poll_small() {
  for (size_t i = 0; i < small_pending_.size();) {
    const uint32_t step = small_pending_[i];
    const Now result = small_[step].transport->recv_now(small_[step].message);
    if (result == Now::later) {
      i++;
      continue;
    }
    small_pending_[i] = small_pending_.back();
    small_pending_.pop_back();
    if (result == Now::never) {
      small_declined_.push_back(step);
      continue;
    }
    small_now_ns_ = engine_.trace().now();
    small_done(step);
    small_pump();
  }
  return small_declined_.empty();
}

void Execution::leave_small() {
  if (done()) return;
  lanes_[0].readers = prepared_->slot_readers;
  work_list_.clear();
  for (const auto* steps : {&small_declined_, &small_pending_})
    for (const uint32_t step : *steps) work_list_.push_back({0, step});
  small_declined_.clear();
  small_pending_.clear();
  pump();
}

// Steps that became ready meanwhile are in work_list_.
void Execution::small_pump() {
  for (size_t i = 0; i < work_list_.size(); i++) small_ready(work_list_[i].step);
  work_list_.clear();
}

void Execution::small_ready(uint32_t step) {
  SmallStep& small = small_[step];
  if (small.nothing) return small_done(step);
  switch (program_.steps[step].kind) {
    case StepKind::send:
      small.message.key.seq = seq_;
      small.message.data = small_address(small_sources_[small.first_source]);
      if (small.transport->send_now(small.message) != Now::done) {
        small_declined_.push_back(step);
        return;
      }
      break;
    case StepKind::recv:
      small.message.key.seq = seq_;
      small.message.data = small_address(small.target);
      small_pending_.push_back(step);
      return;
    case StepKind::reduce:
    case StepKind::copy:
      run_local_small(small, program_.steps[step]);
      break;
  }
  small_done(step);
}

void Execution::run_local_small(const SmallStep& small, const Step& step) {
  reduce_inputs_.resize(step.sources);
  for (uint32_t i = 0; i < step.sources; i++)
    reduce_inputs_[i] = small_address(small_sources_[small.first_source + i]);
  std::byte* out = small_address(small.target);
  const uint64_t divisor = step.finish ? buffers_.divisor : 1;
  if (step.sources > 1 || divisor != 1)
    reduce(prepared_->request.type, prepared_->request.op, out, reduce_inputs_,
           small.bytes / element_bytes_, divisor);
  else if (reduce_inputs_[0] != out)
    std::memmove(out, reduce_inputs_[0], small.bytes);
}

void Execution::small_done(uint32_t step) {
  const SmallStep& small = small_[step];
  const Step& s = program_.steps[step];
  if (!small.nothing) {
    const bool local = s.kind == StepKind::reduce || s.kind == StepKind::copy;
    const uint64_t begin = local ? small_now_ns_ : small_posted_ns_;
    if (local && small.bytes > kUntimedBytes) small_now_ns_ = engine_.trace().now();
    TraceEvent event;
    event.comm = comm_;
    event.seq = seq_;
    event.step = step;
    event.kind = static_cast<uint8_t>(s.kind);
    event.tier = s.tier;
    event.bytes = small.bytes;
    event.posted_ns = begin;
    event.last_ns = static_cast<uint32_t>(std::min<uint64_t>(small_now_ns_ - begin, 0xffffffffu));
    if (!local) {
      event.peer = small.message.peer;
      event.ready_ns = event.first_ns = event.last_ns;
    }
    engine_.trace().record(event);
  }
  step_done(0, step);
}

}  // namespace sennit
