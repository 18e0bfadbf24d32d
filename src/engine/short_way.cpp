// short_way.cpp: see engine/short_way.hpp.
//
// Local steps on a few bytes are not recorded, which saves reading the clock.
#include "engine/short_way.hpp"

#include <algorithm>
#include <cstring>

#include "engine/engine.hpp"
#include "reduce/reduce.hpp"

namespace sennit {
namespace {

constexpr size_t kMostSteps = 64;

bool is_message(const Step& step) {
  return step.kind == StepKind::send || step.kind == StepKind::recv;
}

}  // namespace

std::unique_ptr<ShortWay> ShortWay::compile(Engine& engine, uint32_t comm,
                                            const std::vector<int>& world_of_position,
                                            const Prepared& prepared, const DataPlaces& places,
                                            const SlotPlaces& slots, bool skip_empty) {
  const Program& program = prepared.program;
  if (program.steps.empty() || program.steps.size() > kMostSteps) return nullptr;
  std::unique_ptr<ShortWay> made(new ShortWay(engine, comm, prepared, places, slots));
  for (uint32_t i = 0; i < program.steps.size(); i++)
    if (!made->compile_step(i, world_of_position, skip_empty)) return nullptr;
  made->start_ = prepared.ready_at_start;
  std::stable_partition(made->start_.begin(), made->start_.end(),
                        [&](uint32_t step) { return program.steps[step].kind == StepKind::send; });
  return made;
}

ShortWay::ShortWay(Engine& engine, uint32_t comm, const Prepared& prepared,
                   const DataPlaces& places, const SlotPlaces& slots)
    : engine_(engine),
      comm_(comm),
      prepared_(prepared),
      program_(prepared.program),
      places_(places),
      slots_(slots),
      steps_(prepared.program.steps.size()) {}

// False where an operand is not in one piece, or a message is too large.
bool ShortWay::compile_step(uint32_t index, const std::vector<int>& world_of_position,
                            bool skip_empty) {
  engine_.assert_locked();
  const Step& step = program_.steps[index];
  SmallStep& small = steps_[index];
  const auto sources = program_.sources_of(step);
  size_t bytes = 0;
  if (step.kind != StepKind::send && !place(step.target, &small.target, &bytes)) return false;
  small.first_source = static_cast<uint32_t>(sources_.size());
  for (const Operand& source : sources) {
    BufferOffset at;
    if (!place(source, &at, &bytes)) return false;
    sources_.push_back(at);
  }
  if (is_message(step)) {
    const int peer = world_of_position[static_cast<size_t>(step.peer)];
    small.transport = engine_.transport(peer);
    if (!small.transport || bytes > small.transport->now_bytes()) return false;
    small.message = {peer, {comm_, 0, 0, step.tag}, prepared_.signature, nullptr, bytes};
    const Operand& what = step.kind == StepKind::send ? sources[0] : step.target;
    small.nothing = bytes == 0 && what.ranges > 0 && skip_empty;
  }
  small.bytes = static_cast<uint32_t>(bytes);
  return true;
}

// Where the operand lies; false if it is not in one piece.
bool ShortWay::place(const Operand& operand, BufferOffset* place, size_t* bytes) const {
  std::vector<Segment> segments;
  *bytes = places_.locate(slots_, operand, &segments);
  if (segments.size() > 1) return false;
  *place = {};
  if (segments.empty()) return true;
  *place = {operand.buffer, 0};
  place->offset = segments[0].data - address(*place);
  return true;
}

void ShortWay::start(uint32_t seq, uint64_t now_ns) {
  seq_ = seq;
  remaining_ = static_cast<uint32_t>(program_.steps.size());
  deps_ = prepared_.initial_deps;
  work_list_.clear();
  pending_.clear();
  declined_.clear();
  now_ns_ = now_ns;
  for (const uint32_t step : start_) ready(step);
  go_on();
}

bool ShortWay::poll() {
  engine_.assert_locked();
  for (size_t i = 0; i < pending_.size();) {
    const uint32_t step = pending_[i];
    const Now result = steps_[step].transport->recv_now(steps_[step].message);
    if (result == Now::later) {
      i++;
      continue;
    }
    pending_[i] = pending_.back();
    pending_.pop_back();
    if (result == Now::never) {
      declined_.push_back(step);
      continue;
    }
    now_ns_ = engine_.trace().now();
    step_done(step);
    go_on();
  }
  return declined_.empty();
}

std::vector<uint32_t> ShortWay::take_ready() {
  std::vector<uint32_t> steps = declined_;
  steps.insert(steps.end(), pending_.begin(), pending_.end());
  declined_.clear();
  pending_.clear();
  return steps;
}

// Until nothing more is ready.
void ShortWay::go_on() {
  for (size_t i = 0; i < work_list_.size(); i++) ready(work_list_[i]);
  work_list_.clear();
}

void ShortWay::ready(uint32_t step) {
  SmallStep& small = steps_[step];
  if (small.nothing) return step_done(step);
  engine_.assert_locked();
  small.posted_ns = now_ns_;
  switch (program_.steps[step].kind) {
    case StepKind::send:
      small.message.key.seq = seq_;
      small.message.data = address(sources_[small.first_source]);
      if (small.transport->send_now(small.message) != Now::done) {
        declined_.push_back(step);
        return;
      }
      break;
    case StepKind::recv:
      small.message.key.seq = seq_;
      small.message.data = address(small.target);
      pending_.push_back(step);
      return;
    case StepKind::reduce:
    case StepKind::copy:
      run_local(small, program_.steps[step]);
      break;
  }
  step_done(step);
}

void ShortWay::run_local(const SmallStep& small, const Step& step) {
  inputs_.resize(step.sources);
  for (uint32_t i = 0; i < step.sources; i++)
    inputs_[i] = address(sources_[small.first_source + i]);
  std::byte* out = address(small.target);
  const uint64_t divisor = step.finish ? places_.buffers.divisor : 1;
  if (step.sources > 1 || divisor != 1)
    reduce(prepared_.request.type, prepared_.request.op, out, inputs_,
           small.bytes / places_.element_bytes(), divisor);
  else if (inputs_[0] != out)
    std::memmove(out, inputs_[0], small.bytes);
}

void ShortWay::step_done(uint32_t step) {
  if (!steps_[step].nothing) trace(step);
  const uint32_t last = prepared_.first_dependent[step + 1];
  for (uint32_t i = prepared_.first_dependent[step]; i < last; i++) {
    const uint32_t dependent = prepared_.dependents[i];
    if (--deps_[dependent] == 0) work_list_.push_back(dependent);
  }
  remaining_--;
}

void ShortWay::trace(uint32_t index) {
  engine_.assert_locked();
  const SmallStep& small = steps_[index];
  const Step& step = program_.steps[index];
  const bool local = !is_message(step);
  if (local) {
    if (small.bytes < kLeastRecordedLocalBytes) return;
    now_ns_ = engine_.trace().now();
  }
  TraceEvent event;
  event.comm = comm_;
  event.seq = seq_;
  event.step = index;
  event.kind = static_cast<EventKind>(step.kind);
  event.tier = step.tier;
  event.bytes = small.bytes;
  event.posted_ns = small.posted_ns;
  const uint64_t took_ns = now_ns_ > small.posted_ns ? now_ns_ - small.posted_ns : 0;
  if (!local) {
    event.peer = small.message.peer;
    event.tag = step.tag;
    event.set_times({took_ns, took_ns, took_ns, 0});
  } else {
    event.set_times({.last_ns = took_ns});
  }
  engine_.trace().record(event);
}

}  // namespace sennit
