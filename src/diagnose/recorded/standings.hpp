// standings.hpp: what all ranks of a recorded job do at one moment.
#pragma once

#include <set>
#include <vector>

#include "diagnose/hang/standing.hpp"

namespace sennit::diagnose {

// What ranks do, each at the moment of its recording.
struct Standings {
  std::vector<Standing> by_rank;  // those that there are
  // World ranks that run, and of which it is not known how old their recordings are.
  std::set<int> undated;
};
// By its host's CLOCK_MONOTONIC a rank's moment is that of its recording, else that of another one,
// also of another host where it is known how far their clocks are apart. Where there is none it is
// when something was recorded last: ranks that wait record it again and again.
Standings standings_of(const JobRecording& job, Plans& plans);

}  // namespace sennit::diagnose
