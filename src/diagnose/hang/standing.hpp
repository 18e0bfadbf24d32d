// standing.hpp: what a rank does at one moment: its latest calls, and what is still to come in
// those that have not ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/calls.hpp"
#include "diagnose/job.hpp"
#include "diagnose/plans.hpp"

namespace sennit::diagnose {

// A message of a collective call that its sender has sent.
struct SentMessage {
  int to = -1;  // world rank
  uint32_t chunk = 0, tag = 0;
};

// One call of a rank.
struct StandingCall {
  CallRecord call;
  // Of a call that has not ended: when something moved in it last, by its host's CLOCK_MONOTONIC;
  // what could go on, or is waited for; and what the rank has sent in it.
  uint64_t moved_ns = 0;
  std::vector<OpenStep> open;
  std::vector<SentMessage> sent;

  bool ended() const { return call.end_ns != 0; }
};

// What one rank does.
struct Standing {
  int rank = 0;
  std::string host;
  RankState state = RankState::running;
  char process = 0;                 // as RankRecording::process
  uint64_t now_ns = 0;              // the moment, by its host's CLOCK_MONOTONIC
  bool forgets = false;             // it made calls that are not here
  std::vector<StandingCall> calls;  // in the order of find_calls()
};

// `job` has that rank's recording, and what `plans` needs.
Standing standing_of(const JobRecording& job, const RankRecording& rank, Plans& plans,
                     uint64_t now_ns);

}  // namespace sennit::diagnose
