// ranks.hpp: which rank is slow, for a reason of its own: it comes late to its calls, or its
// reductions and copies take longer than others'.
//
// Lateness is time between calls: what a rank waits inside of a call for others makes it no later.
// Reasons may be its work, its input or its host; none of them is the network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "diagnose/recordings.hpp"

namespace sennit {

// Ranks that are slow alike, and what it costs.
struct SlowRank {
  enum class What : uint8_t { late, local_steps };
  What what = What::late;
  std::vector<int> ranks;  // world ranks, ascending
  double late_ns = 0;      // more than the median rank, in the median call
  double factor = 1;       // local steps: time for a byte over the median rank's
  double cost = 0;         // part of the time from call to call that is lost to it
  uint32_t comm = 0;
  size_t calls = 0;  // that it was judged by
};

// Of the communicator with most calls in common. Nothing where fewer than a handful are recorded,
// or no rank costs as much as `least_cost` of the time.
std::optional<SlowRank> find_slow_rank(const JobRecording& job, double least_cost);

}  // namespace sennit
