// execution_device.cpp: what an execution does otherwise where its buffers are a device's: local
// work is handed to a worker, and messages go through pinned memory or are read where they lie, or
// where they were copied to in the sender's device.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "engine/engine.hpp"
#include "engine/execution.hpp"

namespace sennit {

Status Execution::join(std::shared_ptr<StreamPlace> place, int peer) {
  // Of this call: whoever was told of an earlier one has that one's.
  armed_ = std::make_shared<std::atomic<bool>>(false);
  engine_.map_peers_memory(device_->accelerator());
  SENNIT_RETURN_IF_ERROR(take_device_memory(peer));
  const MutexLock lock(engine_.mutex());
  device_->join(std::move(place), *this);
  return {};
}

// Messages go exported to peers that have mapped the memory they lie in, which shows once it is
// there; for what goes otherwise, other memory is taken. The driver is asked without the lock: it
// may have the caller wait for a kernel that waits for the engine.
Status Execution::take_device_memory(int peer) {
  std::vector<MessageWay> ways;
  {
    const MutexLock lock(engine_.mutex());
    ways = message_ways(peer);
  }
  for (;;) {
    SENNIT_RETURN_IF_ERROR(device_->reserve(ways, chunks_));
    const Result<std::vector<ExportedMemory>> exported = device_->exported();
    const MutexLock lock(engine_.mutex());
    if (!stage_unmapped(exported, ways, peer)) return {};
  }
}

// Whether any was to be sent where its receiver has not mapped it: that is staged from now on.
bool Execution::stage_unmapped(const Result<std::vector<ExportedMemory>>& exported,
                               std::vector<MessageWay>& ways, int peer) {
  engine_.assert_locked();
  bool any = false;
  for (size_t i = 0; i < ways.size(); i++) {
    const Step& step = program_.steps[i];
    if (ways[i] != MessageWay::exported || step.kind != StepKind::send) continue;
    const int to = other_end(step, peer);
    bool mapped = exported.ok();
    for (size_t m = 0; mapped && m < exported->size(); m++)
      mapped = engine_.transport(to)->is_mapped(to, comm_, (*exported)[m]);
    if (mapped) continue;
    ways[i] = MessageWay::staged;
    any = true;
  }
  return any;
}

Status Execution::capture(std::shared_ptr<StreamPlace> place, uint32_t seq) {
  const auto tagged = [](const Step& step) { return step.tag >> kTagBits != 0; };
  if (std::any_of(program_.steps.begin(), program_.steps.end(), tagged))
    return {SENNIT_UNSUPPORTED, fmt::format("{}: as part of a graph a call has at most {} messages "
                                            "from one rank to another",
                                            prepared_->description, 1u << kTagBits)};
  point_to_point_ = false;
  seq_ = seq;
  in_graph_ = true;
  return join(std::move(place));
}

Status Execution::capture_message(std::shared_ptr<StreamPlace> place, uint32_t seq, int peer,
                                  uint32_t tag) {
  point_to_point_ = true;
  seq_ = seq;
  peer_ = peer;
  tag_ = tag;
  in_graph_ = true;
  return join(std::move(place), peer);
}

void Execution::leave_graph() {
  in_graph_ = false;
  replay_ = 0;
  device_->leave_graph();
}

void Execution::replay() {
  replay_ = replay_ % kReplays + 1;
  engine_.assert_locked();
  engine_.takes_up(*this, true);
  begin(seq_);
}

// How a message to the peer goes if it has mapped what that lies in, or may come from the peer.
MessageWay Execution::way_of(int peer, StepKind kind) {
  engine_.assert_locked();
  Transport* const transport = engine_.transport(peer);
  if (!transport) return MessageWay::staged;
  const Accelerator& accelerator = device_->accelerator();
  if (transport->exposes_own_process() && accelerator.alone()) return MessageWay::direct;
  // A small message, unlike others, leaves before its receive is posted, and programs count on it.
  const bool leaves_early =
      prepared_->request.collective == Collective::send_recv &&
      prepared_->request.count * places_.element_bytes() <= transport->now_bytes();
  const bool exported =
      kind == StepKind::send
          ? accelerator.exports() && transport->exposes_devices(peer) && !leaves_early
          : engine_.maps_for(accelerator) && transport->reads_devices(peer);
  return exported ? MessageWay::exported : MessageWay::staged;
}

// The rank at the other end of this step. Of a message that is `peer`, or -1 where it is not known.
int Execution::other_end(const Step& step, int peer) const {
  return prepared_->request.collective == Collective::send_recv
             ? peer
             : world_of_position_[static_cast<size_t>(step.peer)];
}

// By step. Of a message `peer` is the other end, or -1: then it may come any way. Senders hear that
// what they send may be where this rank's device has mapped it.
std::vector<MessageWay> Execution::message_ways(int peer) {
  engine_.assert_locked();
  std::vector<MessageWay> ways(program_.steps.size(), MessageWay::staged);
  for (size_t i = 0; i < ways.size(); i++) {
    const Step& step = program_.steps[i];
    if (step.kind != StepKind::send && step.kind != StepKind::recv) continue;
    const int other = other_end(step, peer);
    if (other >= 0) ways[i] = way_of(other, step.kind);
    if (step.kind == StepKind::recv && ways[i] == MessageWay::exported)
      engine_.transport(other)->takes_exported(other, comm_);
  }
  return ways;
}

void Execution::arrive() {
  *armed_ = false;
  engine_.assert_locked();
  last_progress_ns = engine_.trace().now();
  if (awaits_source_) return;  // what begins when it is known
  if (places_.buffers.scaled_elements == 0) return go();
  if (!places_.buffers.factor_in_stream) return scale_input();
  device_->read_factor(kReadingFactor);
  local_out_++;
}

void Execution::scale_input() {
  scaling_ = device_->scale_input(places_.buffers, kScaling).pieces;
  local_out_ += scaling_;
}

// Whether there is something to wait for.
bool Execution::await_pieces(uint32_t lane, uint32_t step,
                             const DeviceMemory::Submitted& submitted) {
  if (submitted.pieces == 0) return false;
  engine_.assert_locked();
  LocalPieces& own = local_pieces_[lane * program_.steps.size() + step];
  own.left = submitted.pieces;
  own.bytes = submitted.bytes;
  own.begin_ns = engine_.trace().now();
  local_out_ += submitted.pieces;
  return true;
}

// Whether the message has to be copied to where it goes out from: then local_done() goes on.
bool Execution::stage_send(uint32_t lane, uint32_t step, size_t bytes) {
  SendRequest& request = send_request(lane, step);
  std::vector<Segment>& segments = segments_of(lane, step);
  request.exported = bytes > 0 && device_->way(step) == MessageWay::exported;
  if (bytes == 0 || !device_->stages_send(step, segments.size())) return false;
  const Result<std::byte*> staging = device_->staging(lane, step, bytes);
  if (!staging) {
    fail_here(staging.status());
    return true;
  }
  const auto token = static_cast<uint32_t>(lane * program_.steps.size() + step);
  await_pieces(lane, step, device_->copy(segments, *staging, true, token));
  segments.assign(1, {*staging, bytes});
  request.segments = segments;
  return true;
}

// The message comes into pinned memory, or is exposed where the peer has it. Which, is asked anew:
// of a message from any rank only now it is known who that is, and a sender that is behind may have
// heard since join() that this rank's device has mapped what it sends from.
Status Execution::stage_receive(uint32_t lane, uint32_t step, size_t bytes, RecvRequest& request) {
  std::vector<Segment>& segments = segments_of(lane, step);
  const MessageWay way = way_of(request.peer, StepKind::recv);
  request.may_expose = way == MessageWay::direct;
  request.may_import = way == MessageWay::exported;
  if (bytes == 0 || request.may_expose || !device_->stages_receive(step)) return {};
  const Result<std::byte*> staging = device_->staging(lane, step, bytes);
  if (!staging) return staging.status();
  segments.assign(1, {*staging, bytes});
  request.segments = segments;
  return {};
}

// What has come is copied to where it belongs, unless it is there: then local_done() goes on.
bool Execution::unpack(uint32_t lane, uint32_t step, RecvRequest& request) {
  const Operand& target = program_.steps[step].target;
  const bool in_slot = target.buffer == Buffer::slot;
  const bool stays =
      request.exposed ? in_slot && prepared_->slot_filler[target.slot] == static_cast<int32_t>(step)
                      : in_slot && !device_->stages_receive(step);
  if (stays || request.bytes == 0) return false;
  std::byte* const from =
      request.exposed ? const_cast<std::byte*>(request.exposed) : request.segments[0].data;
  std::vector<Segment>& segments = segments_of(lane, step);
  segments.clear();
  places_.locate(lanes_[lane].slots, target, &segments);
  const auto token = static_cast<uint32_t>(lane * program_.steps.size() + step);
  return await_pieces(lane, step, device_->copy(segments, from, false, token));
}

// A piece of the input has been multiplied; the last lets the call begin.
void Execution::scaling_done() {
  if (!status_.ok()) return fail(status_);
  if (--scaling_ == 0) go();
}

// Of what the device was told to do nothing more will be heard.
void Execution::device_lost(const Status& why) {
  local_out_ = 0;
  fail_here(why);
}

void Execution::local_done(uint32_t token) {
  local_out_--;
  if (token == kScaling) return scaling_done();
  if (token == kReadingFactor) return status_.ok() ? scale_input() : fail(status_);
  const auto steps = static_cast<uint32_t>(program_.steps.size());
  const uint32_t lane = token / steps;
  const uint32_t step = token % steps;
  LocalPieces& own = local_pieces_[token];
  engine_.assert_locked();
  last_progress_ns = engine_.trace().now();
  if (!status_.ok()) return fail(status_);
  if (--own.left > 0) return;
  switch (program_.steps[step].kind) {
    case StepKind::send:
      push_send(lane, step, send_request(lane, step).bytes);
      break;
    case StepKind::recv: {
      RecvRequest& request = recv_request(lane, step);
      if (request.exposed) release(request);
      step_done(lane, step);
      break;
    }
    default:
      local_step_done(lane, step, own.bytes, own.begin_ns);
  }
  pump();
}

}  // namespace sennit
