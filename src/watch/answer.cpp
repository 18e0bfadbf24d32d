// answer.cpp: see watch/answer.hpp.
#include "watch/answer.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "diagnose/communicator_numbers.hpp"

namespace sennit::watch {
namespace {

using diagnose::CallRecord;
using diagnose::OpenStep;
using diagnose::SentMessage;
using diagnose::Standing;
using diagnose::StandingCall;

constexpr uint8_t kVersion = 1;
// What hangs is in the newest of them.
constexpr uint64_t kMostEvents = 65536;
constexpr size_t kMostCalls = 64, kMostSteps = 64, kMostSent = 256;
// As write() lays them out.
constexpr size_t kCallBytes = 71, kStepBytes = 18, kSentBytes = 12;
// Of larger communicators only some members, which are far from each other, say who is in it.
constexpr size_t kFewMembers = 64;
constexpr size_t kMostNoteBytes = 1 << 20;

// The open ones that somebody waits for, the other open ones, and the last of each communicator, as
// far as there is room; in their order. What is left out the rank is said to have forgotten.
void keep_what_is_told(Standing* standing) {
  const std::vector<StandingCall>& calls = standing->calls;
  std::set<size_t> kept;
  const auto keep = [&](size_t at) {
    if (kept.size() < kMostCalls) kept.insert(at);
  };
  for (size_t i = calls.size(); i-- > 0;)
    if (!calls[i].ended() && calls[i].call.awaited) keep(i);
  for (size_t i = calls.size(); i-- > 0;)
    if (!calls[i].ended()) keep(i);
  std::map<std::pair<uint32_t, bool>, size_t> last;
  for (size_t i = 0; i < calls.size(); i++) {
    const CallRecord& call = calls[i].call;
    const auto [at, first] = last.try_emplace({call.comm, call.point_to_point}, i);
    const uint32_t before = calls[at->second].call.seq;  // numbers may wrap
    if (!first && static_cast<int32_t>(call.seq - before) > 0) at->second = i;
  }
  for (const auto& [comm, at] : last) {
    keep(at);
    if (!kept.contains(at)) standing->forgets = true;
  }
  std::vector<StandingCall> all = std::exchange(standing->calls, {});
  for (const size_t at : kept) standing->calls.push_back(std::move(all[at]));
}

// Whether this member says who the others are.
bool says_members(const std::vector<int>& members, int rank) {
  const size_t count = members.size();
  if (count <= kFewMembers) return true;
  for (const size_t at : {size_t{0}, count / 3, 2 * count / 3, count - 1})
    if (members[at] == rank) return true;
  return false;
}

// Of the calls that have not ended, and of the last, by which what the rank did before is told,
// each once.
std::vector<Note> notes_of(const Standing& standing, const diagnose::JobRecording& job) {
  std::vector<Note> notes;
  std::set<uint32_t> comms;
  std::set<std::pair<uint32_t, uint64_t>> plans;
  for (const StandingCall& open : standing.calls) {
    if (open.ended() && &open != &standing.calls.back()) continue;
    const CallRecord& call = open.call;
    const uint32_t comm = call.comm & ~diagnose::kChannel;
    const std::vector<int> members = job.members_of(comm);
    if (members.empty() || !says_members(members, standing.rank)) continue;
    if (comms.insert(comm).second) notes.emplace_back(CommunicatorNote{comm, members});
    const auto plan = job.plans.find({call.comm, call.plan});
    if (plan != job.plans.end() && plans.insert(plan->first).second)
      notes.emplace_back(plan->second);
  }
  return notes;
}

void write(ByteWriter& out, const StandingCall& standing) {
  const CallRecord& call = standing.call;
  out.u32(call.comm).u32(call.seq).u64(call.plan).flag(call.point_to_point).flag(call.receiving);
  out.rank(call.peer).u32(call.tag).u64(call.begin_ns).u64(call.end_ns).u64(call.stalled_ns);
  out.flag(call.awaited).u32(call.bytes).u64(standing.moved_ns);
  const size_t steps = std::min(standing.open.size(), kMostSteps);
  out.u32(static_cast<uint32_t>(steps));
  for (size_t i = 0; i < steps; i++) {
    const OpenStep& step = standing.open[i];
    out.u8(static_cast<uint8_t>(step.kind)).u8(step.tier).rank(step.peer);
    out.u32(step.chunk).u32(step.step).u32(step.tag);
  }
  const size_t sent = std::min(standing.sent.size(), kMostSent);
  out.u32(static_cast<uint32_t>(sent));
  for (size_t i = standing.sent.size() - sent; i < standing.sent.size(); i++)
    out.rank(standing.sent[i].to).u32(standing.sent[i].chunk).u32(standing.sent[i].tag);
}

StandingCall read_call(ByteReader& in, int rank, int ranks) {
  StandingCall standing;
  CallRecord& call = standing.call;
  call.rank = rank;
  call.comm = in.u32();
  call.seq = in.u32();
  call.plan = in.u64();
  call.point_to_point = in.flag();
  call.receiving = in.flag();
  call.peer = in.rank();
  call.tag = in.u32();
  call.begin_ns = in.u64();
  call.end_ns = in.u64();
  call.stalled_ns = in.u64();
  call.awaited = in.flag();
  call.bytes = in.u32();
  standing.moved_ns = in.u64();
  if (call.peer < -1 || call.peer >= ranks) in.fail();
  standing.open.resize(in.count(kStepBytes));
  for (OpenStep& step : standing.open) {
    const uint8_t kind = in.u8();
    if (kind > static_cast<uint8_t>(EventKind::copy)) in.fail();
    step.kind = static_cast<EventKind>(kind);
    step.tier = in.u8();
    step.peer = in.rank();
    step.chunk = in.u32();
    step.step = in.u32();
    step.tag = in.u32();
    if (step.peer < -1 || step.peer >= ranks) in.fail();
  }
  standing.sent.resize(in.count(kSentBytes));
  for (SentMessage& sent : standing.sent) {
    sent.to = in.rank_below(ranks);
    sent.chunk = in.u32();
    sent.tag = in.u32();
  }
  return standing;
}

}  // namespace

Answer answer_of(diagnose::RecordingFile& file, uint64_t question, const std::string& fabric,
                 const std::vector<Placement>& placements) {
  Answer answer;
  answer.question = question;
  diagnose::RankRecording rank;
  const RecordingHeader& header = file.header();
  rank.rank = header.rank;
  rank.size = header.size;
  rank.host = placements[static_cast<size_t>(header.rank)].host;
  rank.state = diagnose::RankState::running;
  rank.notes = file.notes();
  const uint64_t all = file.recorded();
  if (Result<diagnose::RecordingFile::Events> read =
          file.events_from(all - std::min(all, kMostEvents), kMostEvents)) {
    rank.recorded = read->next;
    rank.events = std::move(read->events);
  }
  diagnose::JobRecording job;
  job.size = header.size;
  diagnose::CommunicatorNumbers numbers(&job);
  numbers.apply(&rank);
  job.take_notes(rank);
  job.fabric = fabric;
  job.placements = placements;
  job.ranks.push_back(std::move(rank));
  job.index();
  diagnose::Plans plans(job);
  answer.standing = diagnose::standing_of(job, job.ranks.front(), plans, now_ns());
  keep_what_is_told(&answer.standing);
  answer.notes = notes_of(answer.standing, job);
  return answer;
}

std::vector<std::byte> encode(const Answer& answer) {
  const Standing& standing = answer.standing;
  ByteWriter out;
  out.u8(kVersion).u64(answer.question).rank(standing.rank).text(standing.host);
  out.u64(standing.now_ns).flag(standing.forgets);
  out.u32(static_cast<uint32_t>(standing.calls.size()));
  for (const StandingCall& call : standing.calls) write(out, call);
  const size_t most = out.size() + kMostNoteBytes;
  for (const Note& note : answer.notes) {
    const std::vector<std::byte> bytes = encode(note);
    if (out.size() + bytes.size() <= most) out.bytes(bytes);
  }
  return out.take();
}

Result<Answer> decode_answer(std::span<const std::byte> bytes, int ranks) {
  ByteReader in(bytes);
  Answer answer;
  Standing& standing = answer.standing;
  if (in.u8() != kVersion) in.fail();
  answer.question = in.u64();
  standing.rank = in.rank_below(ranks);
  standing.host = in.text();
  standing.now_ns = in.u64();
  standing.forgets = in.flag();
  standing.calls.resize(in.count(kCallBytes));
  for (StandingCall& call : standing.calls) call = read_call(in, standing.rank, ranks);
  answer.notes = decode_notes(in.rest());
  SENNIT_RETURN_IF_ERROR(in.finish("an answer"));
  return answer;
}

}  // namespace sennit::watch
