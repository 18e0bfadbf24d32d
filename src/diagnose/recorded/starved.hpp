// starved.hpp: which rank gets no core, by the times in which its process did not run.
#pragma once

#include <optional>
#include <vector>

#include "diagnose/job.hpp"

namespace sennit::diagnose {

// Ranks that do not run for part of the time, while the usual one does.
struct StarvedRanks {
  std::vector<int> ranks;  // world ranks, ascending
  double part = 0;         // of the last seconds; of the rank that had least
};

// Nothing where no rank was paused again and again, for `least` of its time more than the usual
// one; and of a job that has recorded for less than a second.
std::optional<StarvedRanks> find_starved_ranks(const JobRecording& job, double least);

}  // namespace sennit::diagnose
