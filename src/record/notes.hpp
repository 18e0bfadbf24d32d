// notes.hpp: what the events of a recording are about: the fabric and who runs where, the
// communicators, the plans, and what went wrong. Each is written once, behind the ring, but for the
// table of connections (record/connections.hpp).
//
// A note is a kind, the length of what follows, and that (base/bytes.hpp). Who reads them skips
// kinds that it does not know, and stops at one that is cut off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "record/connections.hpp"
#include "schedule/plan.hpp"
#include "schedule/request.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/fabric/slow_boundary.hpp"

namespace sennit {

// What all ranks plan with, as rank 0 writes it; a later one replaces it.
struct FabricNote {
  std::string fabric;                 // its text form
  std::vector<Placement> placements;  // by world rank
  bool operator==(const FabricNote&) const = default;
};

// Written by every member.
struct CommunicatorNote {
  uint32_t id = 0;
  std::vector<int> members;  // world ranks, by rank in the communicator
  bool operator==(const CommunicatorNote&) const = default;
};

// What calls that begin with this plan run; the algorithm makes the programs of all ranks from it.
// Written by every rank as it prepares a call.
struct PlanNote {
  uint32_t comm = 0;
  uint64_t hash = 0;  // Plan::hash
  Request request;    // in fabric order
  std::string algorithm;
  Parameters parameters;
  uint64_t predicted_ns = 0;
  std::vector<SlowBoundary> slow;  // what traffic had shown of the fabric by then
  bool operator==(const PlanNote&) const = default;
};

// A communicator's error, as its caller gets it.
struct FailureNote {
  uint32_t comm = 0;
  uint64_t when_ns = 0;  // CLOCK_MONOTONIC
  std::string text;
  bool operator==(const FailureNote&) const = default;
};

// What a verdict on a running job is about. Numbers are for ever.
enum class VerdictAbout : uint8_t { link = 0, late_ranks = 1, hang = 2, starved_ranks = 3 };
inline constexpr VerdictAbout kVerdictsAbout[] = {VerdictAbout::hang, VerdictAbout::starved_ranks,
                                                  VerdictAbout::link, VerdictAbout::late_ranks};

// What the coordinator found of the job while it ran, or, `withdrawn`, does not find any more. It
// notes it; of a hang all ranks do.
struct VerdictNote {
  uint64_t when_ns = 0;  // CLOCK_REALTIME
  bool withdrawn = false;
  VerdictAbout about = VerdictAbout::link;
  std::string sentence;
  std::vector<std::string> links;  // "out of rack1"
  std::vector<int> ranks;          // world ranks
  double factor = 1, cost = 0, confidence = 0;
  int tier = -1;  // whose links are all slow; -1: one of them is, or it is about none
  // By whose calls it was found: the number that its ranks know it by, which all groups of a split
  // share, and the lowest world rank of its members, -1 where that is not known, as of a hang.
  uint32_t comm = 0;
  int first_member = -1;
  uint64_t noted_ns = 0;  // when this rank noted it, by CLOCK_MONOTONIC; 0: an older recording
  bool operator==(const VerdictNote&) const = default;
};

using Note =
    std::variant<FabricNote, CommunicatorNote, PlanNote, FailureNote, VerdictNote, ConnectionsNote>;

// As it is written.
std::vector<std::byte> encode(const Note& note);
// All of them, in the order in which they were written.
std::vector<Note> decode_notes(std::span<const std::byte> bytes);

}  // namespace sennit
