// standings.cpp: see diagnose/recorded/standings.hpp.
#include "diagnose/recorded/standings.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "diagnose/recorded/messages.hpp"

namespace sennit::diagnose {

std::vector<Standing> standings_of(const JobRecording& job, Plans& plans,
                                   std::optional<uint64_t> now_ns) {
  const std::map<std::string, ClockOffset> clocks = clock_offsets(job, join_messages(job));
  const auto ahead = [&clocks](const RankRecording& rank) {
    return static_cast<uint64_t>(clocks.at(rank.host).ahead_ns);
  };
  uint64_t last = 0;  // that anybody recorded, by the first host's clock
  for (const RankRecording& rank : job.ranks)
    for (const TraceEvent& event : rank.events)
      last = std::max(last, (event.is_step() ? event.ended_at() : event.posted_ns) - ahead(rank));
  std::vector<Standing> standings;
  for (const RankRecording& rank : job.ranks) {
    const uint64_t now = now_ns ? rank.moment_ns(*now_ns) : last + ahead(rank);
    standings.push_back(standing_of(job, rank, plans, now));
  }
  return standings;
}

}  // namespace sennit::diagnose
