// ranks.hpp: which rank comes late to its calls, for a reason of its own.
//
// Lateness is time between calls, in none: what a rank waits inside of a call for others makes it
// no later. Reasons may be its work, its input or its host; none of them is the network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "diagnose/job.hpp"

namespace sennit::diagnose {

// Ranks that come late, and what it costs.
struct LateRanks {
  std::vector<int> ranks;  // world ranks, ascending
  double late_ns = 0;      // more than the median rank, in the median call or stretch of calls
  double cost = 0;         // part of the time from call to call that is lost to it
  uint32_t comm = 0;
  size_t calls = 0;                    // that they were judged by
  int latest = -1;                     // of them
  std::vector<double> latest_late_ns;  // how late it came, by stretch, the oldest first
};

// Of the communicator with most calls in common. Nothing where fewer than a handful are recorded,
// or no rank costs as much as `least_cost` of the time. `passed_over`: ranks, ascending, of which
// it is known why they are late.
std::optional<LateRanks> find_late_ranks(const JobRecording& job, double least_cost,
                                         const std::vector<int>& passed_over = {});

}  // namespace sennit::diagnose
