// live_verdict.hpp: what the coordinator has found of a running job: a link that is slow, or ranks
// that come late.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diagnose/edges.hpp"
#include "record/notes.hpp"

namespace sennit::watch {

enum class LiveKind : uint8_t { slow_link, late_rank };

// Told when it has held for some digests, told again when it costs much more or less than was told,
// and once more, `withdrawn`, when it has not for some.
struct LiveVerdict {
  LiveKind kind = LiveKind::slow_link;
  bool withdrawn = false;
  uint64_t when_ns = 0;  // CLOCK_REALTIME
  // By whose calls it was found: the communicator's number, the ranks of the job that are its
  // members, and Plan::hash of the calls (of late ranks: 0).
  uint32_t comm = 0;
  std::vector<int> members;
  uint64_t plan = 0;
  PlanNote judged;  // of those calls; of late ranks: empty
  // Of a slow link: its suspects, one of which is slow; of a whole tier, all are. Groups are those
  // of the communicator's tree. `both_ways`: each stands for its two directions.
  std::vector<diagnose::DirectedGroup> suspects;
  std::vector<std::string> links;  // their names: "out of rack1"
  int tier = -1;                   // -1: no whole tier
  bool both_ways = false;
  double factor = 1;      // what it should carry over what it does; 0: not known
  double confidence = 0;  // 0 to 1
  // Of late ranks: these, of the job, ascending, and how late they come to a call.
  std::vector<int> ranks;
  double late_ns = 0;

  double cost = 0;       // part of the calls' time, or of all time, that is lost to it
  std::string sentence;  // all of that, as the log and `sennit diagnose` say it
};

// Whether the link, in this direction, is one of the verdict's suspects.
bool is_blamed(const LiveVerdict& verdict, const diagnose::DirectedGroup& link);

// {"verdict":"slow_link","withdrawn":false,"sentence":...}; the keys are those of
// watch/README.md.
std::string json_of(const LiveVerdict& verdict);

}  // namespace sennit::watch
