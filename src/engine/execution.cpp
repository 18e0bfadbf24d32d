// execution.cpp: see engine/execution.hpp.
#include "engine/execution.hpp"

#include <algorithm>
#include <utility>

#include "engine/engine.hpp"

namespace sennit {
namespace {

uint32_t saturated(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
}

uint64_t since(uint64_t posted_ns, uint64_t t) { return t > posted_ns ? t - posted_ns : 0; }

static_assert(static_cast<int>(EventKind::send) == static_cast<int>(StepKind::send) &&
              static_cast<int>(EventKind::copy) == static_cast<int>(StepKind::copy));

}  // namespace

Execution::Execution(Engine& engine, uint32_t comm, const std::vector<int>& world_of_position,
                     std::shared_ptr<const Prepared> prepared, Accelerator* accelerator)
    : engine_(engine),
      comm_(comm),
      world_of_position_(world_of_position),
      prepared_(std::move(prepared)),
      program_(prepared_->program),
      places_(program_, type_bytes(prepared_->request.type)),
      local_steps_(*prepared_, places_) {
  const size_t steps = program_.steps.size();
  ordinal_.assign(steps, 0);
  message_.assign(steps, 0);
  uint32_t messages = 0;
  for (size_t i = 0; i < steps; i++) {
    const StepKind kind = program_.steps[i].kind;
    if (kind != StepKind::send && kind != StepKind::recv) continue;
    ordinal_[i] = kind == StepKind::send ? send_count_++ : recv_count_++;
    message_[i] = messages++;
  }
  chunks_ = std::max(1u, prepared_->plan.parameters.chunks);
  lanes_.resize(std::min(chunks_, kLanes));
  for (Lane& lane : lanes_) {
    lane.slots.base.assign(program_.slots.size(), nullptr);
    lane.slots.offset.assign(program_.slots.size(), 0);
    lane.segments.resize(messages);
  }
  sends_.resize(lanes_.size() * send_count_);
  handed_ns_.resize(sends_.size());
  receives_.resize(lanes_.size() * recv_count_);
  peers_.resize(prepared_->peers.size());
  // A barrier's messages are empty by nature. Where ranks do not know each other's counts
  // (all_to_all_v, gather_v, scatter_v), a difference shows as a message of the wrong size. And of
  // a single message only its receiver learns that it has come, from whom, and whether it fits.
  const Request& request = prepared_->request;
  counts_shared_ = !request.vector_variant || !request.counts.empty();
  skip_empty_ = counts_shared_ && request.collective != Collective::barrier &&
                request.collective != Collective::send_recv;
  if (!accelerator) return;
  device_ = std::make_unique<DeviceMemory>(*accelerator, *prepared_, places_, local_steps_,
                                           lanes_.size());
  local_pieces_.resize(lanes_.size() * steps);
}

Execution::~Execution() {
  engine_.assert_locked();
  if (device_) return;  // which has the slots
  for (Lane& lane : lanes_) engine_.free_scratch({lane.slots.arena, lane.slots.arena_bytes});
}

void Execution::start(uint32_t seq) {
  point_to_point_ = false;
  begin(seq);
}

void Execution::start_message(uint32_t seq, int peer, uint32_t tag) {
  point_to_point_ = true;
  peer_ = peer;
  tag_ = tag;
  begin(seq);
}

void Execution::await_source(uint32_t tag) {
  engine_.assert_locked();
  point_to_point_ = true;
  peer_ = -1;
  tag_ = tag;
  seq_ = 0;
  status_ = {};
  begin_ns_ = engine_.trace().now();
  record_call(EventKind::call_begin, begin_ns_);
  outstanding_ = 0;
  awaits_source_ = true;
  *armed_ = device_ && device_->waits();
  done_.store(false, std::memory_order_relaxed);
}

void Execution::begin(uint32_t seq) {
  engine_.assert_locked();
  seq_ = seq;
  status_ = {};
  awaits_source_ = false;
  done_.store(false, std::memory_order_relaxed);
  begin_ns_ = engine_.trace().now();
  record_call(EventKind::call_begin, begin_ns_);
  chunks_left_ = chunks_;
  outstanding_ = 0;
  torn_ = false;
  work_list_.clear();
  local_list_.clear();
  for (SendQueue& peer : peers_) peer.clear();
  *armed_ = device_ && device_->waits();
  if (!armed()) go();
}

void Execution::go() {
  if (program_.steps.empty()) {
    finish();
    return;
  }
  for (uint32_t lane = 0; lane < lanes_.size(); lane++) begin_chunk(lane, lane);
  pump();
}

void Execution::begin_chunk(uint32_t lane_index, uint32_t chunk) {
  Lane& lane = lanes_[lane_index];
  lane.slots.chunk = {chunk, chunks_};
  lane.remaining = static_cast<uint32_t>(program_.steps.size());
  lane.deps = prepared_->initial_deps;
  if (!program_.slots.empty()) {
    lane.readers = prepared_->slot_readers;
    if (const Status status = lay_out_slots(lane); !status.ok()) return fail_here(status);
  }
  for (const uint32_t step : prepared_->ready_at_start) work_list_.push_back({lane_index, step});
}

// Places the lane's slots for its chunk, in scratch of the engine's.
Status Execution::lay_out_slots(Lane& lane) {
  engine_.assert_locked();
  SlotPlaces& slots = lane.slots;
  const size_t bytes = places_.lay_out(slots);
  if (device_) {
    SENNIT_RETURN_IF_ERROR(
        device_->give_arena(slots, static_cast<size_t>(&lane - lanes_.data()), bytes));
  } else if (bytes > slots.arena_bytes) {
    engine_.free_scratch({slots.arena, slots.arena_bytes});
    slots.arena = nullptr;
    slots.arena_bytes = 0;
    const Result<MemoryPool::Scratch> scratch = engine_.allocate_scratch(bytes);
    if (!scratch)
      return {scratch.status().kind(),
              scratch.status().text() + ", in scratch: use smaller chunks (SENNIT_CHUNK_BYTES)"};
    slots.arena = scratch->memory;
    slots.arena_bytes = scratch->bytes;
  }
  places_.use_arena(slots);
  return {};
}

// Works through everything that became ready, without recursion. Messages first: the wire works
// while this core reduces and copies. Of that the lowest chunk first: whoever waits for it goes on
// with it while the next is done here.
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
      if (!peers_[peer].empty()) post_sends(peer);
    if (!work_list_.empty()) continue;  // posting may complete a step
    if (local_list_.empty() || !status_.ok()) break;
    std::pop_heap(local_list_.begin(), local_list_.end());
    const LocalStep local = local_list_.back();
    local_list_.pop_back();
    run_local(local.lane, local.step);
  }
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
      local_list_.push_back({lanes_[lane].slots.chunk.index, step, lane});
      std::push_heap(local_list_.begin(), local_list_.end());
      break;
  }
}

void Execution::step_done(uint32_t lane_index, uint32_t step) {
  if (torn_) return;
  Lane& lane = lanes_[lane_index];
  const uint32_t last = prepared_->first_dependent[step + 1];
  for (uint32_t i = prepared_->first_dependent[step]; i < last; i++) {
    const uint32_t dependent = prepared_->dependents[i];
    if (--lane.deps[dependent] == 0) work_list_.push_back({lane_index, dependent});
  }
  if (--lane.remaining > 0) return;
  const uint32_t next = lane.slots.chunk.index + static_cast<uint32_t>(lanes_.size());
  if (--chunks_left_ == 0)
    finish();
  else if (next < chunks_)
    begin_chunk(lane_index, next);
}

void Execution::fill(MessageRequest& request, uint32_t lane, uint32_t step, size_t bytes) {
  const Step& s = program_.steps[step];
  if (point_to_point_) {
    request.peer = peer_;
    request.key = {comm_, seq_, kPointToPoint - replay_, tag_};
  } else {
    request.peer = world_of_position_[static_cast<size_t>(s.peer)];
    request.key = {comm_, seq_, lanes_[lane].slots.chunk.index, s.tag | replay_ << kTagBits};
  }
  request.signature = prepared_->signature;
  request.segments = segments_of(lane, step);
  request.bytes = bytes;
  request.status = {};
  request.ready_ns = 0;
  request.first_ns = 0;
  request.owner = this;
  request.step = lane * static_cast<uint32_t>(program_.steps.size()) + step;
  engine_.assert_locked();
  request.posted_ns = engine_.trace().now();
}

void Execution::post_receive(uint32_t lane, uint32_t step) {
  engine_.assert_locked();
  const Step& s = program_.steps[step];
  std::vector<Segment>& segments = segments_of(lane, step);
  segments.clear();
  const size_t bytes = places_.locate(lanes_[lane].slots, s.target, &segments);
  if (bytes == 0 && s.target.ranges > 0 && skip_empty_) {
    step_done(lane, step);
    return;
  }
  RecvRequest& request = recv_request(lane, step);
  fill(request, lane, step, bytes);
  request.may_expose = s.target.buffer == Buffer::slot &&
                       prepared_->slot_filler[s.target.slot] == static_cast<int32_t>(step);
  if (device_)
    if (const Status staged = stage_receive(lane, step, bytes, request); !staged.ok())
      return fail_here(staged);
  request.exposed = nullptr;
  request.sender_waited_us = RecvRequest::kNotTold;
  outstanding_++;
  engine_.recv(request);
}

void Execution::queue_send(uint32_t lane, uint32_t step) {
  const Step& s = program_.steps[step];
  std::vector<Segment>& segments = segments_of(lane, step);
  segments.clear();
  const size_t bytes =
      places_.locate(lanes_[lane].slots, program_.operands[s.first_source], &segments);
  if (bytes == 0 && program_.operands[s.first_source].ranges > 0 && skip_empty_) {
    slots_read(lanes_[lane], lane, s);
    step_done(lane, step);
    return;
  }
  fill(send_request(lane, step), lane, step, bytes);
  if (!device_ || !stage_send(lane, step, bytes)) push_send(lane, step, bytes);
}

void Execution::push_send(uint32_t lane, uint32_t step, size_t bytes) {
  peers_[prepared_->peer_slot[step]].push({lane, step, bytes}, program_.steps[step].tier,
                                          lanes_[lane].slots.chunk.index);
}

void Execution::post_sends(uint32_t peer_slot) {
  engine_.assert_locked();
  while (const auto next = peers_[peer_slot].take(engine_.in_flight_bytes())) {
    outstanding_++;
    handed_ns_[next->lane * send_count_ + ordinal_[next->step]] = engine_.trace().now();
    engine_.send(send_request(next->lane, next->step));
  }
}

void Execution::send_done(SendRequest& request) {
  outstanding_--;
  const auto steps = static_cast<uint32_t>(program_.steps.size());
  const uint32_t lane = request.step / steps;
  const uint32_t step = request.step % steps;
  peers_[prepared_->peer_slot[step]].done(request.bytes);
  if (!status_.ok() || !request.status.ok()) return failed(request, false);
  engine_.assert_locked();
  const uint64_t handed_ns = handed_ns_[lane * send_count_ + ordinal_[step]];
  record(message_event(request, lane, step, handed_ns));
  slots_read(lanes_[lane], lane, program_.steps[step]);
  step_done(lane, step);
  pump();
}

void Execution::receive_done(RecvRequest& request) {
  outstanding_--;
  const auto steps = static_cast<uint32_t>(program_.steps.size());
  const uint32_t lane = request.step / steps;
  const uint32_t step = request.step % steps;
  if (!status_.ok() || !request.status.ok()) {
    if (request.exposed) release(request);
    return failed(request, true);
  }
  const bool unpacks = device_ && unpack(lane, step, request);
  if (request.exposed && !unpacks)
    lanes_[lane].slots.base[program_.steps[step].target.slot] =
        const_cast<std::byte*>(request.exposed);
  engine_.assert_locked();
  TraceEvent event = message_event(request, lane, step, request.posted_ns);
  if (request.sender_waited_us != RecvRequest::kNotTold) {
    event.sender_waited_us = request.sender_waited_us;
    event.sender_clock_us = request.sender_clock_us;
    event.flags |= kEventKnowsItsWait;
  }
  record(event);
  if (unpacks) return;  // local_done() goes on
  step_done(lane, step);
  pump();
}

void Execution::run_local(uint32_t lane_index, uint32_t step) {
  engine_.assert_locked();
  Lane& lane = lanes_[lane_index];
  const uint64_t begin_ns = engine_.trace().now();
  if (device_) {
    const auto token = static_cast<uint32_t>(lane_index * program_.steps.size() + step);
    if (await_pieces(lane_index, step, device_->run(lane.slots, program_.steps[step], token)))
      return;
  }
  const size_t bytes = device_ ? 0 : local_steps_.run(lane.slots, program_.steps[step]);
  local_step_done(lane_index, step, bytes, begin_ns);
}

// A reduction or a copy.
void Execution::local_step_done(uint32_t lane_index, uint32_t step, size_t bytes,
                                uint64_t begin_ns) {
  engine_.assert_locked();
  record(event_of(lane_index, step, begin_ns, bytes));
  slots_read(lanes_[lane_index], lane_index, program_.steps[step]);
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
  release(request);
  SlotPlaces& slots = lanes_[lane].slots;
  slots.base[slot] = slots.home(slot);
}

void Execution::release(RecvRequest& request) {
  engine_.assert_locked();
  engine_.release(request);
  request.exposed = nullptr;
  if (request.status.ok()) return;
  // Of what its peer has cancelled this rank hears anyway; of all else nobody but this one knows.
  if (!torn_ && request.status.kind() != SENNIT_PEER_FAILED)
    engine_.failed_here(comm_, request.status);
  torn_ = true;
}

// Of a step that has just ended.
TraceEvent Execution::event_of(uint32_t lane, uint32_t step, uint64_t posted_ns, size_t bytes) {
  engine_.assert_locked();
  const Step& s = program_.steps[step];
  TraceEvent event;
  event.comm = comm_;
  event.seq = seq_;
  event.chunk = lanes_[lane].slots.chunk.index;
  event.step = step;
  event.kind = static_cast<EventKind>(s.kind);
  event.tier = s.tier;
  event.bytes = saturated(bytes);
  event.posted_ns = posted_ns;
  event.set_times({.last_ns = since(posted_ns, engine_.trace().now())});
  return event;
}

TraceEvent Execution::message_event(const MessageRequest& request, uint32_t lane, uint32_t step,
                                    uint64_t handed_ns) {
  TraceEvent event = event_of(lane, step, request.posted_ns, request.bytes);
  event.peer = request.peer;
  event.tag = request.key.tag;
  if (point_to_point_) event.flags |= kEventPointToPoint;
  // A receive that was complete the moment it was seen has no times of its own.
  TraceEvent::Times times{.last_ns = event.after(event.last)};
  const auto or_last = [&](uint64_t t) { return t ? since(event.posted_ns, t) : times.last_ns; };
  times.ready_ns = or_last(request.ready_ns);
  times.first_ns = or_last(request.first_ns);
  times.handed_ns = since(event.posted_ns, handed_ns);
  event.set_times(times);
  return event;
}

TraceEvent Execution::call_event(EventKind kind, uint64_t when_ns) const {
  TraceEvent event;
  event.comm = comm_;
  event.seq = seq_;
  event.kind = kind;
  event.posted_ns = when_ns;
  if (point_to_point_) {
    event.peer = peer_;
    event.tag = tag_;
    event.flags |= kEventPointToPoint;
    const bool receives = !program_.steps.empty() && program_.steps[0].kind == StepKind::recv;
    if (receives) event.flags |= kEventReceiving;
    event.bytes = saturated(prepared_->request.count * type_bytes(prepared_->request.type));
  }
  if (prepared_->request.in_place) event.flags |= kEventInPlace;
  if (is_awaited()) event.flags |= kEventAwaited;
  event.set_plan(prepared_->plan.hash);
  if (!status_.ok()) event.flags |= kEventFailed;
  return event;
}

// What a graph makes again has the numbers of the call that was captured, so it is not recorded:
// whoever reads recordings knows each call by its number.
void Execution::record(const TraceEvent& event) {
  engine_.assert_locked();
  if (replay_ == 0) engine_.trace().record(event);
}

void Execution::record_call(EventKind kind, uint64_t when_ns) {
  engine_.assert_locked();
  TraceEvent event = call_event(kind, when_ns);
  if (kind == EventKind::call_end) event.set_times({.last_ns = since(begin_ns_, when_ns)});
  record(event);
}

void Execution::record_stall(uint64_t now_ns) {
  engine_.assert_locked();
  TraceEvent event = call_event(EventKind::stall, now_ns);
  event.set_times({.last_ns = since(last_progress_ns, now_ns)});
  record(event);
}

void Execution::failed(const MessageRequest& request, bool receiving) {
  engine_.assert_locked();
  if (request.status.kind() == SENNIT_MISMATCH && status_.ok()) {
    // Calls that differ are for all ranks to hear of, from the control plane, which knows who
    // differs. Where only the two ends can know (counts that ranks do not share), the one that
    // receives says it.
    if (!point_to_point_ && counts_shared_ && !in_graph_)
      engine_.mismatch(*this, request.peer);
    else if (receiving)
      engine_.failed_here(comm_, request.status);
    return;
  }
  fail_here(request.status);
}

void Execution::fail_here(const Status& status) {
  engine_.assert_locked();
  if (status_.ok() && !status.ok()) engine_.failed_here(comm_, status);
  fail(status);
}

void Execution::fail(const Status& status) {
  if (done()) return;
  if (status_.ok() && !status.ok()) {
    status_ = status;
    *armed_ = false;
    releases_ = true;
  }
  // What the device still reads stays where it is.
  if (status_.ok() || local_out_ > 0) return;
  if (std::exchange(releases_, false)) release_all();
  if (outstanding_ == 0) finish();
}

void Execution::release_all() {
  for (uint32_t lane = 0; lane < lanes_.size(); lane++)
    for (uint32_t slot = 0; slot < program_.slots.size(); slot++) release_exposed(lane, slot);
  if (!device_) return;
  for (RecvRequest& request : receives_)
    if (request.exposed) release(request);
}

void Execution::finish() {
  engine_.assert_locked();
  finish(engine_.trace().now());
}

void Execution::finish(uint64_t now_ns) {
  record_call(EventKind::call_end, now_ns);
  if (timed) finished_ns = now_ns;
  if (device_) device_->leave();
  done_.store(true, std::memory_order_release);
}

// ---- the short way ----

bool Execution::compile_small() {
  if (chunks_ != 1 || point_to_point_ || !counts_shared_ || prepared_->request.vector_variant)
    return false;
  Lane& lane = lanes_[0];
  lane.slots.chunk = {0, 1};
  if (!program_.slots.empty() && !lay_out_slots(lane).ok()) return false;
  short_way_ = ShortWay::compile(engine_, comm_, world_of_position_, *prepared_, places_,
                                 lane.slots, skip_empty_);
  return short_way_ != nullptr;
}

void Execution::start_small(uint32_t seq) {
  engine_.assert_locked();
  seq_ = seq;
  point_to_point_ = false;
  status_ = {};
  done_.store(false, std::memory_order_relaxed);
  chunks_left_ = 1;
  outstanding_ = 0;
  // Its begin is recorded where it takes long: leave_small().
  begin_ns_ = engine_.trace().now();
  short_way_->start(seq, begin_ns_);
  if (short_way_->done()) finish(short_way_->now_ns());
}

bool Execution::poll_small() {
  const bool on_short_way = short_way_->poll();
  if (short_way_->done()) finish(short_way_->now_ns());
  return on_short_way;
}

void Execution::leave_small() {
  if (done()) return;
  record_call(EventKind::call_begin, begin_ns_);
  Lane& lane = lanes_[0];
  lane.remaining = short_way_->remaining();
  lane.deps = short_way_->deps();
  lane.readers = prepared_->slot_readers;
  work_list_.clear();
  for (const uint32_t step : short_way_->take_ready()) work_list_.push_back({0, step});
  pump();
}

}  // namespace sennit
