// standing.cpp: see diagnose/hang/standing.hpp.
#include "diagnose/hang/standing.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace sennit::diagnose {
namespace {

// Of the calls that have not ended: when something moved in them, and what was sent.
void look_at_steps(const RankRecording& rank, std::vector<StandingCall>* calls) {
  std::map<std::tuple<uint32_t, uint32_t, bool>, std::vector<StandingCall*>> open;
  for (StandingCall& standing : *calls) {
    const CallRecord& call = standing.call;
    standing.moved_ns = call.begin_ns;
    if (!standing.ended()) open[{call.comm, call.seq, call.point_to_point}].push_back(&standing);
  }
  for (const TraceEvent& event : rank.events) {
    if (!event.is_step()) continue;
    const bool message = event.is(kEventPointToPoint);
    const auto found = open.find({event.comm, event.seq, message});
    if (found == open.end()) continue;
    for (StandingCall* const standing : found->second) {
      if (message && standing->call.peer != event.peer) continue;  // its numbers are of a pair
      if (event.ended_at() < standing->call.begin_ns) continue;
      standing->moved_ns = std::max(standing->moved_ns, event.ended_at());
      if (event.kind == EventKind::send && !message)
        standing->sent.push_back({event.peer, event.chunk, event.tag});
    }
  }
}

}  // namespace

Standing standing_of(const JobRecording& job, const RankRecording& rank, Plans& plans,
                     uint64_t now_ns) {
  Standing standing;
  standing.rank = rank.rank;
  standing.host = rank.host;
  standing.state = rank.state;
  standing.process = rank.process;
  standing.now_ns = now_ns;
  standing.forgets = rank.recorded > rank.events.size();
  for (const CallRecord& call : find_calls(rank)) {
    StandingCall one;
    one.call = call;
    standing.calls.push_back(std::move(one));
  }
  look_at_steps(rank, &standing.calls);
  for (StandingCall& one : standing.calls)
    if (!one.ended()) one.open = open_steps(job, one.call, plans);
  return standing;
}

}  // namespace sennit::diagnose
