// hang.hpp: in calls that do not end: which rank is behind, and where.
//
// Whoever waits accuses the rank that it waits for, and that one's own waiting moves the blame on,
// until it comes to a rank that waits for nobody, or to a message that left and did not arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/hang/standing.hpp"
#include "diagnose/job.hpp"
#include "diagnose/plans.hpp"

namespace sennit::diagnose {

// Why a call does not end.
enum class HangCause : uint8_t {
  gone,          // `behind` were killed, or ended without leaving
  silent,        // `behind` were asked what they do, and do not answer
  not_called,    // `behind` have not begun the call
  other_call,    // `behind` have begun another one under its number
  waits_itself,  // `behind` are in calls that wait for ranks that wait for this one
  stands_still,  // `behind` are in the call, have what they need, and do not go on
  lost_message,  // what `behind` sent did not arrive at `waiting`
  unknown        // the recordings do not say, or not all are here
};

// A call that does not end, and who is to blame for it.
struct Hang {
  HangCause cause = HangCause::not_called;
  std::vector<int> behind;   // world ranks, ascending
  std::vector<int> waiting;  // that are in the call; of a lost message, its receivers
  uint32_t comm = 0, seq = 0;
  uint64_t plan = 0;              // of the call
  std::optional<OpenStep> where;  // the step that is not done, and its peer
  uint64_t since_ns = 0;          // how long nothing has happened in it
  std::string sentence;           // all of that, for people
  std::vector<std::string> evidence;
};

// From when on a call in which nothing moves hangs; a collective call not before it has been so for
// several times as long as it should take.
struct Patience {
  uint64_t call_ns = 0;     // of a collective call
  uint64_t message_ns = 0;  // of a send or a receive, which may wait for long where all is well
  // Not 0: only calls count of which their rank has said so lately that nothing moves in them at
  // all, not even a part of a message.
  uint64_t said_ns = 0;
};

// Nothing where no call that somebody waits for has been open, without a step, for so long.
// `standings`: by rank. Of `job` only what calls are about is used: communicators and plans.
std::optional<Hang> find_hang(const JobRecording& job, Plans& plans,
                              std::vector<Standing> standings, const Patience& patience);

// What the cause is called in a verdict for programs: "not_called".
std::string_view name(HangCause cause);

}  // namespace sennit::diagnose
