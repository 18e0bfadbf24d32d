// live_verdict.hpp: what the coordinator has found of a running job: a link that is slow, ranks
// that come late or get no core, or ranks that are behind in a call that does not end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "diagnose/calls.hpp"
#include "diagnose/edges.hpp"
#include "record/notes.hpp"

namespace sennit::watch {

// Of a call that does not end.
struct LiveHang {
  std::string cause;         // name(HangCause)
  std::string call;          // "all_reduce of 4MiB float32 sum"; empty of a send or a receive
  uint32_t seq = 0;          // its number on its communicator
  std::vector<int> waiting;  // world ranks that are in it
  std::optional<diagnose::OpenStep> where;  // the step that is not done, and its peer
  std::string tier;                         // that its message crosses
};

// Told when it has held for some digests, told again when it costs much more or less than was told
// or others are to blame, and once more, `withdrawn`, when it has not for some.
struct LiveVerdict {
  VerdictAbout about = VerdictAbout::link;
  bool withdrawn = false;
  // By CLOCK_REALTIME: when it is told, and when it was found first, some looks before; of a hang
  // the latter is not known.
  uint64_t when_ns = 0, since_ns = 0;
  // By whose calls it was found: the communicator's number, the ranks of the job that are its
  // members, and Plan::hash of the calls (of late ranks, and of a send or a receive: 0).
  uint32_t comm = 0;
  std::vector<int> members;
  uint64_t plan = 0;
  PlanNote judged;  // of the calls that show a slow link
  // Of a slow link: its suspects, one of which is slow; of a whole tier, all are. Groups are those
  // of the communicator's tree. `both_ways`: each stands for its two directions.
  std::vector<diagnose::DirectedGroup> suspects;
  std::vector<std::string> links;  // their names: "out of rack1"
  int tier = -1;                   // -1: no whole tier
  bool both_ways = false;
  double factor = 1;      // what it should carry over what it does; 0: not known
  double confidence = 0;  // 0 to 1
  // To blame, of the job, ascending. Of late ones, how late they come to a call; of those without a
  // core, for how long they had none in the time from one call to the next.
  std::vector<int> ranks;
  double late_ns = 0;
  // Of late ones: which is the latest, and cores that its process asks for between its calls;
  // nothing: not known.
  int latest = -1;
  std::optional<double> cores;
  std::optional<LiveHang> hang;

  double cost = 0;       // part of the calls' time, or of all time, that is lost to it
  std::string sentence;  // all of that, as the log and `sennit diagnose` say it
  std::string next;      // what to do, or to run; empty of what is withdrawn
};

// Whether the link, in this direction, is one of the verdict's suspects.
bool is_blamed(const LiveVerdict& verdict, const diagnose::DirectedGroup& link);

// What a recording keeps of it.
VerdictNote note_of(const LiveVerdict& verdict);

// Of a hang, as all ranks are told it. Errors of decoding: it is none, or one of ranks outside of a
// job of `size`.
std::vector<std::byte> encode_hang(const LiveVerdict& verdict);
Result<LiveVerdict> decode_hang(std::span<const std::byte> bytes, int size);

// {"verdict":"slow_link","withdrawn":false,"sentence":...}; the keys are those of
// watch/README.md.
std::string json_of(const LiveVerdict& verdict);

}  // namespace sennit::watch
