// calls.cpp: see diagnose/calls.hpp.
#include "diagnose/calls.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "schedule/layout.hpp"
#include "schedule/prepared.hpp"

namespace sennit::diagnose {
namespace {

CallRecord begun(int rank, const TraceEvent& event, size_t at) {
  CallRecord call;
  call.rank = rank;
  call.comm = event.comm;
  call.seq = event.seq;
  call.plan = event.plan();
  call.point_to_point = event.is(kEventPointToPoint);
  call.receiving = event.is(kEventReceiving);
  call.peer = event.peer;
  call.tag = event.tag;
  call.begin_ns = event.posted_ns;
  call.in_place = event.is(kEventInPlace);
  call.awaited = event.is(kEventAwaited);
  call.bytes = event.bytes;
  call.first_event = at;
  return call;
}

// The steps that the recording says have ended, by chunk.
std::map<uint32_t, std::set<uint32_t>> ended_steps(const RankRecording& rank,
                                                   const CallRecord& call) {
  std::map<uint32_t, std::set<uint32_t>> ended;
  // Those that ended on the short way were recorded before the begin was.
  for (const TraceEvent& event : rank.events) {
    if (event.comm != call.comm || event.seq != call.seq || event.is(kEventPointToPoint)) continue;
    if (event.is_step() && event.ended_at() >= call.begin_ns) ended[event.chunk].insert(event.step);
  }
  return ended;
}

// A rank's steps of one chunk that could go on. Steps come after those that they wait for, so one
// pass does.
class ChunkProgress {
 public:
  ChunkProgress(const Program& program, const Request& request, Chunk chunk)
      : program_(program), chunk_(chunk) {
    layout_.count = request.count;
    element_bytes_ = type_bytes(request.type);
    layout_.counts = request.counts.empty() ? nullptr : request.counts.data();
    skips_empty_ = request.collective != Collective::barrier &&
                   (!request.vector_variant || !request.counts.empty());
  }
  // `done`: the steps that have ended; gets those that leave no event, messages without bytes and
  // what is done sooner than recorded.
  std::vector<uint32_t> open(std::set<uint32_t>* done) const {
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < program_.steps.size(); i++) {
      if (done->contains(i)) continue;
      const Step& step = program_.steps[i];
      const std::span<const uint32_t> deps = program_.deps_of(step);
      const bool ready =
          std::all_of(deps.begin(), deps.end(), [&](uint32_t dep) { return done->contains(dep); });
      if (ready && (is_nothing(step) || goes_unrecorded(step)))
        done->insert(i);
      else if (ready)
        open.push_back(i);
    }
    return open;
  }

 private:
  static bool is_message(const Step& step) {
    return step.kind == StepKind::send || step.kind == StepKind::recv;
  }
  const Operand& operand_of(const Step& step) const {
    return step.kind == StepKind::send ? program_.operands[step.first_source] : step.target;
  }
  uint64_t elements(const Step& step) const {
    return layout_.length(program_, operand_of(step), chunk_);
  }
  bool is_nothing(const Step& step) const {
    return is_message(step) && skips_empty_ && operand_of(step).ranges > 0 && elements(step) == 0;
  }
  bool goes_unrecorded(const Step& step) const {
    return !is_message(step) && elements(step) * element_bytes_ < kLeastRecordedLocalBytes;
  }

  const Program& program_;
  const Chunk chunk_;
  Layout layout_;
  uint64_t element_bytes_ = 1;
  bool skips_empty_ = true;
};

}  // namespace

std::vector<CallRecord> find_calls(const RankRecording& rank) {
  std::vector<CallRecord> calls;
  // Of one name several may be open, receives from anybody: the oldest first. Few are, and mostly
  // one, so a list that moves up when its first one goes is the quickest.
  std::map<CallRecord::Name, std::vector<size_t>> open;
  for (size_t i = 0; i < rank.events.size(); i++) {
    const TraceEvent& event = rank.events[i];
    if (event.is_step()) continue;
    CallRecord seen = begun(rank.rank, event, i);
    std::vector<size_t>& its = open[seen.name()];
    if (event.kind == EventKind::call_begin) {
      // A receive from anybody begins again once its source is known.
      CallRecord::Name from_any = seen.name();
      from_any.peer = -1;
      from_any.seq = 0;
      const auto waited = open.find(from_any);
      if (seen.receiving && seen.peer >= 0 && waited != open.end() && !waited->second.empty()) {
        const size_t at = waited->second.front();
        waited->second.erase(waited->second.begin());
        seen.begin_ns = calls[at].begin_ns;
        calls[at] = seen;
        its.push_back(at);
        continue;
      }
      its.push_back(calls.size());
      calls.push_back(seen);
      continue;
    }
    if (its.empty()) {
      // Of small calls that went through at once there is the end alone.
      seen.whole = false;
      seen.first_event = 0;
      seen.begin_ns = event.posted_ns - event.after(event.last);
      its.push_back(calls.size());
      calls.push_back(seen);
    }
    CallRecord& call = calls[its.front()];
    call.awaited = seen.awaited;
    if (event.kind == EventKind::stall) call.stalled_ns = event.posted_ns;
    if (event.kind == EventKind::call_end) {
      call.end_ns = event.posted_ns;
      call.failed = event.is(kEventFailed);
      its.erase(its.begin());
    }
    if (its.empty()) open.erase(seen.name());
  }
  return calls;
}

std::vector<CallRecord> find_calls(const JobRecording& job) {
  std::vector<CallRecord> calls;
  for (const RankRecording& rank : job.ranks) {
    const std::vector<CallRecord> its = find_calls(rank);
    calls.insert(calls.end(), its.begin(), its.end());
  }
  return calls;
}

// Lane l runs chunks l, l + L, ... one after the other, so the first chunk of a lane that has steps
// left is the one under way.
std::vector<OpenStep> open_steps(const JobRecording& job, const CallRecord& call, Plans& plans) {
  if (call.point_to_point)
    return {{call.receiving ? EventKind::recv : EventKind::send, call.peer, 0, 0, call.tag, 0}};
  const RankRecording* const rank = job.find(call.rank);
  const Program* const program = plans.program(call.comm, call.plan, call.in_place, call.rank);
  const PlanNote* const note = plans.note(call.comm, call.plan);
  if (!rank || !program || !note || !call.whole) return {};
  std::vector<OpenStep> open;
  std::map<uint32_t, std::set<uint32_t>> ended = ended_steps(*rank, call);
  const uint32_t chunks = std::max(1u, note->parameters.chunks);
  const uint32_t lanes = std::min(chunks, kLanes);
  for (uint32_t lane = 0; lane < lanes; lane++) {
    for (uint32_t chunk = lane; chunk < chunks; chunk += lanes) {
      const ChunkProgress progress(*program, note->request, {chunk, chunks});
      const std::vector<uint32_t> steps = progress.open(&ended[chunk]);
      for (const uint32_t i : steps) {
        const Step& step = program->steps[i];
        open.push_back({static_cast<EventKind>(step.kind), plans.rank_at(call.comm, step.peer),
                        chunk, i, step.tag, step.tier});
      }
      if (!steps.empty()) break;
    }
  }
  return open;
}

}  // namespace sennit::diagnose
