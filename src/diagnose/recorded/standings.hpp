// standings.hpp: what all ranks of a recorded job do at one moment.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "diagnose/hang/standing.hpp"

namespace sennit::diagnose {

// By rank, those that there are. `now_ns`: of a job that runs, CLOCK_REALTIME; else the moment is
// that of the last that was recorded.
std::vector<Standing> standings_of(const JobRecording& job, Plans& plans,
                                   std::optional<uint64_t> now_ns);

}  // namespace sennit::diagnose
