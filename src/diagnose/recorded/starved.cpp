// starved.cpp: see diagnose/recorded/starved.hpp.
#include "diagnose/recorded/starved.hpp"

#include <algorithm>
#include <map>

#include "base/median.hpp"
#include "record/recording.hpp"

namespace sennit::diagnose {
namespace {

constexpr uint64_t kLatestNs = 10'000'000'000, kLeastNs = 1'000'000'000;
// Once or twice happens to anybody on a busy machine.
constexpr size_t kLeastPauses = 3;

// Until what was recorded last: a job that has ended its calls may be stopped. Pauses reach back as
// far as they are kept, and the rank as far as it was there.
double paused_part(const RankRecording& rank) {
  if (rank.events.empty() || rank.pauses.size() < kLeastPauses) return 0;
  uint64_t end_ns = 0;
  for (const TraceEvent& event : rank.events) end_ns = std::max(end_ns, event.posted_ns);
  uint64_t begin_ns = std::max(end_ns - std::min(end_ns, kLatestNs), rank.monotonic_ns);
  const bool older_are_gone = rank.pauses.size() + 2 >= RecordingHeader::kPauses;
  if (older_are_gone) begin_ns = std::max(begin_ns, rank.pauses.front().begin_ns);
  if (end_ns < begin_ns + kLeastNs) return 0;
  return static_cast<double>(paused_ns(rank.pauses, begin_ns, end_ns)) /
         static_cast<double>(end_ns - begin_ns);
}

}  // namespace

std::optional<StarvedRanks> find_starved_ranks(const JobRecording& job, double least) {
  std::map<int, double> parts;
  std::vector<double> all;
  for (const RankRecording& rank : job.ranks) all.push_back(parts[rank.rank] = paused_part(rank));
  if (all.size() < 2) return std::nullopt;
  // As live: watch/judge.cpp.
  const double usual = lower_median(all);
  least = usual + std::max({least, chance_above(std::move(all)), usual});
  StarvedRanks starved;
  for (const auto& [rank, part] : parts) {
    if (part < least) continue;
    starved.ranks.push_back(rank);
    starved.part = std::max(starved.part, part);
  }
  return starved.ranks.empty() ? std::nullopt : std::optional(starved);
}

}  // namespace sennit::diagnose
