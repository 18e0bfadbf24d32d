// execution.cpp: the general way of a call: steps become ready, messages are posted, reductions
// run, chunks follow one another through the lanes. Where data lies: engine/locate.cpp; small
// calls: engine/small.cpp.
#include "engine/execution.hpp"

#include <algorithm>
#include <cstring>

#include "engine/engine.hpp"
#include "reduce/reduce.hpp"

namespace sennit {
namespace {

uint32_t saturated(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, 0xffffffffu));
}

}  // namespace

Execution::Execution(Engine& engine, uint32_t comm, const std::vector<int>& world_of_position,
                     std::shared_ptr<const Prepared> prepared)
    : engine_(engine),
      comm_(comm),
      world_of_position_(world_of_position),
      prepared_(std::move(prepared)),
      program_(prepared_->program),
      element_bytes_(type_bytes(prepared_->request.type)) {
  const size_t steps = program_.steps.size();
  ordinal_.assign(steps, 0);
  message_.assign(steps, 0);
  uint32_t messages = 0;
  for (size_t i = 0; i < steps; i++) {
    if (program_.steps[i].kind == StepKind::send)
      ordinal_[i] = send_count_++, message_[i] = messages++;
    if (program_.steps[i].kind == StepKind::recv)
      ordinal_[i] = recv_count_++, message_[i] = messages++;
  }
  chunks_ = std::max(1u, prepared_->plan.parameters.chunks);
  lanes_.resize(std::min(chunks_, kLanes));
  for (Lane& lane : lanes_) {
    lane.slot_base.assign(program_.slots.size(), nullptr);
    lane.slot_offset.assign(program_.slots.size() + 1, 0);
    lane.segments.resize(messages);
  }
  sends_.resize(lanes_.size() * send_count_);
  receives_.resize(lanes_.size() * recv_count_);
  peers_.resize(prepared_->peers.size());
  // A barrier's messages are empty by nature. And where ranks do not know each other's counts
  // (all_to_all_v, gather_v, scatter_v), a difference shows as a message of the wrong size.
  const Request& request = prepared_->request;
  counts_shared_ = !request.vector_variant || !request.counts.empty();
  skip_empty_ = counts_shared_ && request.collective != Collective::barrier;
}

Execution::~Execution() {
  for (Lane& lane : lanes_) engine_.free_scratch(lane.arena, lane.arena_bytes);
}

void Execution::start(uint32_t seq, bool point_to_point) {
  seq_ = seq;
  point_to_point_ = point_to_point;
  status_ = {};
  done_.store(false, std::memory_order_relaxed);
  chunks_left_ = chunks_;
  outstanding_ = 0;
  work_list_.clear();
  local_list_.clear(), local_next_ = 0;
  for (Peer& peer : peers_) peer.ready.clear(), peer.bytes_in_flight = 0, peer.in_flight = 0;
  if (program_.steps.empty()) {
    finish();
    return;
  }
  for (uint32_t lane = 0; lane < lanes_.size(); lane++) begin_chunk(lane, lane);
  pump();
}

void Execution::begin_chunk(uint32_t lane_index, uint32_t chunk) {
  Lane& lane = lanes_[lane_index];
  lane.chunk = {chunk, chunks_};
  lane.remaining = static_cast<uint32_t>(program_.steps.size());
  lane.deps = prepared_->initial_deps;
  if (!program_.slots.empty()) {
    lane.readers = prepared_->slot_readers;
    if (const Status status = lay_out_slots(lane); !status.ok()) return fail_here(status);
  }
  for (const uint32_t step : prepared_->ready_at_start) work_list_.push_back({lane_index, step});
}

// Works through everything that became ready, without recursion. Messages first: the wire works
// while this core reduces and copies.
void Execution::pump() {
  if (pumping_) return;
  pumping_ = true;
  while (status_.ok()) {
    for (size_t i = 0; i < work_list_.size() && status_.ok(); i++) {
      const LaneStep ready = work_list_[i];
      step_ready(ready.lane, ready.step);
    }
    work_list_.clear();
    for (uint32_t peer = 0; peer < peers_.size() && status_.ok(); peer++)
      if (!peers_[peer].ready.empty()) post_sends(peer);
    if (!work_list_.empty()) continue;  // posting may complete a step
    if (local_next_ == local_list_.size() || !status_.ok()) break;
    const LaneStep local = local_list_[local_next_++];
    run_local(local.lane, local.step);
  }
  if (local_next_ == local_list_.size()) local_list_.clear(), local_next_ = 0;
  pumping_ = false;
}

void Execution::step_ready(uint32_t lane, uint32_t step) {
  switch (program_.steps[step].kind) {
    case StepKind::recv:
      post_receive(lane, step);
      break;
    case StepKind::send:
      queue_send(lane, step);
      break;
    case StepKind::reduce:
    case StepKind::copy:
      local_list_.push_back({lane, step});
      break;
  }
}

void Execution::step_done(uint32_t lane_index, uint32_t step) {
  Lane& lane = lanes_[lane_index];
  const uint32_t first = prepared_->first_dependent[step],
                 last = prepared_->first_dependent[step + 1];
  for (uint32_t i = first; i < last; i++) {
    const uint32_t dependent = prepared_->dependents[i];
    if (--lane.deps[dependent] == 0) work_list_.push_back({lane_index, dependent});
  }
  if (--lane.remaining > 0) return;
  const uint32_t next = lane.chunk.index + static_cast<uint32_t>(lanes_.size());
  if (--chunks_left_ == 0)
    finish();
  else if (next < chunks_)
    begin_chunk(lane_index, next);
}

void Execution::fill(MessageRequest& request, uint32_t lane, uint32_t step, size_t bytes) {
  const Step& s = program_.steps[step];
  request.peer = world_of_position_[static_cast<size_t>(s.peer)];
  request.key = {comm_, seq_, point_to_point_ ? kPointToPoint : lanes_[lane].chunk.index, s.tag};
  request.signature = prepared_->signature;
  request.segments = segments_of(lane, step);
  request.bytes = bytes;
  request.status = {};
  request.ready_ns = 0;
  request.first_ns = 0;
  request.owner = this;
  request.step = lane * static_cast<uint32_t>(program_.steps.size()) + step;
  request.posted_ns = now_ns();
}

void Execution::post_receive(uint32_t lane, uint32_t step) {
  const Step& s = program_.steps[step];
  std::vector<Segment>& segments = segments_of(lane, step);
  segments.clear();
  const size_t bytes = locate(lanes_[lane], s.target, &segments);
  if (bytes == 0 && s.target.ranges > 0 && skip_empty_) {
    step_done(lane, step);
    return;
  }
  RecvRequest& request = recv_request(lane, step);
  fill(request, lane, step, bytes);
  request.may_expose = s.target.buffer == Buffer::slot &&
                       prepared_->slot_filler[s.target.slot] == static_cast<int32_t>(step);
  request.exposed = nullptr;
  outstanding_++;
  engine_.recv(request);
}

void Execution::queue_send(uint32_t lane, uint32_t step) {
  const Step& s = program_.steps[step];
  std::vector<Segment>& segments = segments_of(lane, step);
  segments.clear();
  const size_t bytes = locate(lanes_[lane], program_.operands[s.first_source], &segments);
  if (bytes == 0 && program_.operands[s.first_source].ranges > 0 && skip_empty_) {
    slots_read(lanes_[lane], lane, s);
    step_done(lane, step);
    return;
  }
  fill(send_request(lane, step), lane, step, bytes);
  Peer& peer = peers_[prepared_->peer_slot[step]];
  const uint64_t order = (static_cast<uint64_t>(255 - s.tier) << 56) |
                         (static_cast<uint64_t>(lanes_[lane].chunk.index) << 28) |
                         (step & 0xfffffffu);
  peer.ready.push_back({order, lane, step});
  std::push_heap(peer.ready.begin(), peer.ready.end());
}

void Execution::post_sends(uint32_t peer_slot) {
  Peer& peer = peers_[peer_slot];
  while (!peer.ready.empty()) {
    const ReadySend next = peer.ready.front();
    SendRequest& request = send_request(next.lane, next.step);
    if (peer.in_flight >= 2 && peer.bytes_in_flight + request.bytes > engine_.in_flight_bytes())
      return;
    std::pop_heap(peer.ready.begin(), peer.ready.end());
    peer.ready.pop_back();
    peer.in_flight++;
    peer.bytes_in_flight += request.bytes;
    outstanding_++;
    engine_.send(request);
  }
}

void Execution::send_done(SendRequest& request) {
  outstanding_--;
  const auto steps = static_cast<uint32_t>(program_.steps.size());
  const uint32_t lane = request.step / steps, step = request.step % steps;
  Peer& peer = peers_[prepared_->peer_slot[step]];
  peer.in_flight--;
  peer.bytes_in_flight -= request.bytes;
  if (!status_.ok() || !request.status.ok()) return failed(request, false);
  trace(&request, lane, step, request.posted_ns, request.bytes);
  slots_read(lanes_[lane], lane, program_.steps[step]);
  step_done(lane, step);
  pump();
}

void Execution::receive_done(RecvRequest& request) {
  outstanding_--;
  const auto steps = static_cast<uint32_t>(program_.steps.size());
  const uint32_t lane = request.step / steps, step = request.step % steps;
  if (!status_.ok() || !request.status.ok()) {
    if (request.exposed) engine_.release(request), request.exposed = nullptr;
    return failed(request, true);
  }
  if (request.exposed)
    lanes_[lane].slot_base[program_.steps[step].target.slot] =
        const_cast<std::byte*>(request.exposed);
  trace(&request, lane, step, request.posted_ns, request.bytes);
  step_done(lane, step);
  pump();
}

void Execution::run_local(uint32_t lane_index, uint32_t step) {
  Lane& lane = lanes_[lane_index];
  const Step& s = program_.steps[step];
  const auto sources = program_.sources_of(s);
  const uint64_t begin_ns = now_ns();
  if (reduce_segments_.size() < sources.size() + 1) reduce_segments_.resize(sources.size() + 1);
  for (auto& segments : reduce_segments_) segments.clear();
  const size_t bytes = locate(lane, s.target, &reduce_segments_[0]);
  for (size_t i = 0; i < sources.size(); i++) locate(lane, sources[i], &reduce_segments_[i + 1]);

  // Walk all operands together, in runs that are contiguous in each.
  const DataType type = prepared_->request.type;
  const uint64_t divisor = s.finish ? buffers_.divisor : 1;
  const bool plain_copy = sources.size() == 1 && divisor == 1;
  std::vector<size_t>& at = reduce_at_;
  std::vector<size_t>& used = reduce_used_;
  at.assign(sources.size() + 1, 0);
  used.assign(sources.size() + 1, 0);
  reduce_inputs_.resize(sources.size());
  for (size_t left = bytes; left > 0;) {
    size_t run = left;
    for (size_t i = 0; i <= sources.size(); i++) {
      const Segment& segment = reduce_segments_[i][at[i]];
      run = std::min(run, segment.bytes - used[i]);
    }
    std::byte* out = reduce_segments_[0][at[0]].data + used[0];
    for (size_t i = 0; i < sources.size(); i++)
      reduce_inputs_[i] = reduce_segments_[i + 1][at[i + 1]].data + used[i + 1];
    if (!plain_copy)
      reduce(type, prepared_->request.op, out, reduce_inputs_, run / element_bytes_, divisor);
    else if (reduce_inputs_[0] != out)
      std::memmove(out, reduce_inputs_[0], run);
    for (size_t i = 0; i <= sources.size(); i++) {
      used[i] += run;
      if (used[i] == reduce_segments_[i][at[i]].bytes) at[i]++, used[i] = 0;
    }
    left -= run;
  }
  trace(nullptr, lane_index, step, begin_ns, bytes);
  slots_read(lane, lane_index, s);
  step_done(lane_index, step);
}

void Execution::slots_read(Lane& lane, uint32_t lane_index, const Step& step) {
  for (const Operand& source : program_.sources_of(step))
    if (source.buffer == Buffer::slot && --lane.readers[source.slot] == 0)
      release_exposed(lane_index, source.slot);
}

void Execution::release_exposed(uint32_t lane, uint32_t slot) {
  const int32_t filler = prepared_->slot_filler[slot];
  if (filler < 0) return;
  RecvRequest& request = recv_request(lane, static_cast<uint32_t>(filler));
  if (!request.exposed) return;
  engine_.release(request);
  request.exposed = nullptr;
  lanes_[lane].slot_base[slot] = lanes_[lane].arena + lanes_[lane].slot_offset[slot];
}

void Execution::trace(const MessageRequest* request, uint32_t lane, uint32_t step,
                      uint64_t posted_ns, size_t bytes) {
  const Step& s = program_.steps[step];
  const auto since = [&](uint64_t t) { return t > posted_ns ? saturated(t - posted_ns) : 0; };
  TraceEvent event;
  event.comm = comm_;
  event.seq = seq_;
  event.chunk = lanes_[lane].chunk.index;
  event.step = step;
  event.kind = static_cast<uint8_t>(s.kind);
  event.tier = s.tier;
  event.bytes = saturated(bytes);
  event.posted_ns = posted_ns;
  event.last_ns = since(now_ns());
  if (request) {
    event.peer = request->peer;
    // A receive that was complete the moment it was seen has no times of its own.
    event.ready_ns = request->ready_ns ? since(request->ready_ns) : event.last_ns;
    event.first_ns = request->first_ns ? since(request->first_ns) : event.last_ns;
  }
  engine_.trace().record(event);
}

void Execution::failed(const MessageRequest& request, bool receiving) {
  if (request.status.kind() == SENNIT_MISMATCH && status_.ok()) {
    // Calls that differ are for all ranks to hear of, from the control plane, which knows who
    // differs. Where only the two ends can know (counts that ranks do not share), the one that
    // receives says it.
    if (!point_to_point_ && counts_shared_)
      engine_.mismatch(*this, request.peer);
    else if (receiving)
      engine_.failed_here(comm_, request.status);
    return;
  }
  fail_here(request.status);
}

void Execution::fail_here(const Status& status) {
  if (status_.ok() && !status.ok()) engine_.failed_here(comm_, status);
  fail(status);
}

void Execution::fail(const Status& status) {
  if (done()) return;
  if (status_.ok() && !status.ok()) {
    status_ = status;
    for (uint32_t lane = 0; lane < lanes_.size(); lane++)
      for (uint32_t slot = 0; slot < program_.slots.size(); slot++) release_exposed(lane, slot);
  }
  if (outstanding_ == 0 && !status_.ok()) finish();
}

void Execution::finish() {
  if (timed) finished_ns = now_ns();
  done_.store(true, std::memory_order_release);
}

}  // namespace sennit
