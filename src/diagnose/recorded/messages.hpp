// messages.hpp: what both ends of a message recorded, put together, and the clocks of the hosts
// made one by it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "diagnose/job.hpp"

namespace sennit::diagnose {

// A message of which at least one end is recorded. Times are CLOCK_MONOTONIC of its own host.
struct Message {
  int from = 0, to = 0;              // world ranks
  const TraceEvent* sent = nullptr;  // null: that end is not recorded, or not any more
  const TraceEvent* received = nullptr;
};
// All of them, by the time of the end that is recorded. They point into `job`.
std::vector<Message> join_messages(const JobRecording& job);

// What a host's CLOCK_MONOTONIC is ahead of that of the first rank's host.
struct ClockOffset {
  int64_t ahead_ns = 0;
  // How far that may be off: half of the shortest time there and back. Of a host that nothing was
  // measured of, and whose messages went one way only, or nowhere, it is not known (kUnknown).
  static constexpr uint64_t kUnknown = ~uint64_t{0};
  uint64_t error_ns = kUnknown;
};
// By host: of what the control plane measured and what messages say the better, along the way from
// host to host whose errors add up to least. A message arrives after it was handed over: the
// tightest of these bounds in both directions between two hosts say how far their clocks are apart.
// Where there is neither it is what their real time says, as the ranks' files have it.
std::map<std::string, ClockOffset> clock_offsets(const JobRecording& job,
                                                 const std::vector<Message>& messages);

}  // namespace sennit::diagnose
