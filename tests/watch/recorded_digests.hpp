// recorded_digests.hpp: the digests that ranks would have told of what a recording has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "diagnose/job.hpp"
#include "watch/summary.hpp"

namespace sennit::watch {

// Of one rank, a digest after every `calls` calls. Placements say who is on which host.
inline std::vector<Digest> digests_of(const diagnose::JobRecording& job, int rank, size_t calls) {
  std::vector<bool> remote;
  const auto& at = job.placements;
  for (const Placement& place : at) remote.push_back(place.host != at[size_t(rank)].host);
  Summary summary(remote);
  std::vector<TraceEvent> events = job.find(rank)->events;
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    const auto recorded_at = [](const TraceEvent& e) {
      return e.is_step() ? e.ended_at() : e.posted_ns;
    };
    return recorded_at(a) < recorded_at(b);
  });
  std::vector<Digest> digests;
  size_t ended = 0;
  uint64_t since_ns = events.front().posted_ns;
  for (const TraceEvent& event : events) {
    summary.add(event);
    if (event.kind != EventKind::call_end || ++ended % calls != 0) continue;
    digests.push_back(summary.take(event.posted_ns - since_ns));
    since_ns = event.posted_ns;
  }
  return digests;
}

}  // namespace sennit::watch
