// calls.hpp: the calls of every rank as its recording has them, and what of those that have not
// ended is still to come.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "diagnose/job.hpp"
#include "diagnose/plans.hpp"

namespace sennit::diagnose {

// A step that was begun and has not ended, or whose begin nothing holds up.
struct OpenStep {
  EventKind kind = EventKind::recv;
  int peer = -1;  // world rank; -1: none, or any
  uint32_t chunk = 0, step = 0, tag = 0;
  uint8_t tier = 0;
};

// One rank's part in a call.
struct CallRecord {
  int rank = 0;
  uint32_t comm = 0, seq = 0;
  uint64_t plan = 0;
  bool point_to_point = false, receiving = false;
  int peer = -1;  // of a send or a receive; -1: any
  uint32_t tag = 0;
  uint64_t begin_ns = 0, end_ns = 0;  // its host's CLOCK_MONOTONIC; end 0: it has not ended
  bool failed = false;                // it ended with an error
  bool in_place = false;
  uint64_t stalled_ns = 0;  // when its rank recorded last that nothing moves in it; 0: never
  bool awaited = false;     // somebody waited for it when that was last recorded
  uint32_t bytes = 0;       // of a send or a receive; saturates
  size_t first_event = 0;   // in the rank's events: its begin
  bool whole = true;        // that begin is recorded; else it was overwritten, or never recorded
  // Which call of its rank it is; calls of several ranks have one name where it is one collective.
  struct Name {
    uint32_t comm = 0, seq = 0, tag = 0;
    int peer = -1;
    bool point_to_point = false, receiving = false;
    bool operator<(const Name& other) const { return tied() < other.tied(); }
    bool operator==(const Name&) const = default;
    std::tuple<uint32_t, uint32_t, uint32_t, int, bool, bool> tied() const {
      return {comm, seq, tag, peer, point_to_point, receiving};
    }
  };
  Name name() const {
    if (!point_to_point) return {comm, seq, 0, -1, false, false};
    return {comm, seq, tag, peer, true, receiving};
  }
};
// In the order in which they began or, where that is not recorded, ended or stalled.
std::vector<CallRecord> find_calls(const RankRecording& rank);
// Of all ranks, by rank.
std::vector<CallRecord> find_calls(const JobRecording& job);

// Of a call that has not ended: what could go on, or be waited for, at this moment, of chunks that
// have begun. Empty where the program is not known, or the ring was too short for the call.
std::vector<OpenStep> open_steps(const JobRecording& job, const CallRecord& call, Plans& plans);

}  // namespace sennit::diagnose
