// execution_device.cpp: what an execution does otherwise where its buffers are a device's: local
// work is handed to a worker, and messages go through pinned memory or are read where they lie.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "engine/engine.hpp"
#include "engine/execution.hpp"

namespace sennit {

Status Execution::join(std::shared_ptr<StreamPlace> place) {
  // Of this call: whoever was told of an earlier one has that one's.
  armed_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<bool> direct;
  {
    const MutexLock lock(engine_.mutex());
    direct = direct_messages();
  }
  // Without the lock: the driver may have the caller wait for a kernel that waits for the engine.
  SENNIT_RETURN_IF_ERROR(device_->reserve(direct, chunks_));
  const MutexLock lock(engine_.mutex());
  device_->join(std::move(place), *this);
  return {};
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
  return join(std::move(place));
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

// Whether the device reads the peer's memory where it lies.
bool Execution::is_direct(int peer) {
  engine_.assert_locked();
  const Transport* const transport = engine_.transport(peer);
  return transport && transport->exposes_own_process() && device_->accelerator().alone();
}

// By step. Of a message to or from a rank that is named only as it is started nothing is known.
std::vector<bool> Execution::direct_messages() {
  std::vector<bool> direct(program_.steps.size(), false);
  const bool collective = prepared_->request.collective != Collective::send_recv;
  for (size_t i = 0; i < direct.size(); i++) {
    const Step& step = program_.steps[i];
    if (collective && (step.kind == StepKind::send || step.kind == StepKind::recv))
      direct[i] = is_direct(world_of_position_[static_cast<size_t>(step.peer)]);
  }
  return direct;
}

void Execution::arrive() {
  *armed_ = false;
  engine_.assert_locked();
  last_progress_ns = engine_.trace().now();
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

// The message goes out of pinned memory, unless the peer reads it where it lies. Whether it has to
// be copied there first: then local_done() goes on.
bool Execution::stage_send(uint32_t lane, uint32_t step, size_t bytes) {
  SendRequest& request = send_request(lane, step);
  std::vector<Segment>& segments = segments_of(lane, step);
  const bool in_slot = program_.operands[program_.steps[step].first_source].buffer == Buffer::slot;
  const bool direct = is_direct(request.peer);
  if (bytes == 0 || (direct ? segments.size() == 1 : in_slot)) return false;
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

// The message comes into pinned memory, or is exposed where the peer has it.
Status Execution::stage_receive(uint32_t lane, uint32_t step, size_t bytes, RecvRequest& request) {
  std::vector<Segment>& segments = segments_of(lane, step);
  if (is_direct(request.peer)) {
    request.may_expose = true;
    return {};
  }
  request.may_expose = false;
  if (bytes == 0 || program_.steps[step].target.buffer == Buffer::slot) return {};
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
  const bool stays = in_slot && (!request.exposed ||
                                 prepared_->slot_filler[target.slot] == static_cast<int32_t>(step));
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
      if (request.exposed) engine_.release(request);
      request.exposed = nullptr;
      step_done(lane, step);
      break;
    }
    default:
      local_step_done(lane, step, own.bytes, own.begin_ns);
  }
  pump();
}

}  // namespace sennit
