// model.hpp: what a program must do, in plain code that knows nothing of the library: who takes
// part in which event, in which thread and after what, and which statuses each call may return.
// tests/random/contents.hpp: what the buffers must hold.
//
// What disturbs a communicator (an abort, a mismatch, a death) happens while other ranks may be
// anywhere, so two statuses can be right; where only one can be, only that one is allowed:
//   OK      a call that was over before a later one that waits for all ranks was over where the
//           disturbance began
//   not OK  a call that needs what the disturbing rank would have given after it
#pragma once

#include <string>
#include <vector>

#include "tests/random/program.hpp"

namespace random_programs {

// A communicator, on all ranks together. Its members are the program's ranks, in the order of their
// ranks in it; each uses it in its thread number `thread`, modulo how many it has.
struct Comm {
  int job = -1;      // number of the init event
  int made_by = -1;  // event
  int color = 0;     // of a split
  std::vector<int> members;
  int thread = 0;
};

// Of Model::allowed: a bit for each status, and one for a call that cannot be made because its
// handle is not there.
inline constexpr uint32_t bit(int status) { return uint32_t{1} << status; }
inline constexpr int kSkipped = 30;

// All that follows from a program. Where `invalid` says something the rest means nothing.
struct Model {
  std::string invalid;  // why this is not a program; else empty
  std::vector<Comm> comms;
  std::vector<int> start_of_work;                    // the event
  std::vector<std::vector<std::vector<int>>> steps;  // [rank][thread]: events
  // [rank][event]: events of the same rank in other threads that must be over
  std::vector<std::vector<std::vector<int>>> waits;
  std::vector<std::vector<uint32_t>> allowed;  // [event][rank]; 0: the rank has no part in it
  std::vector<int> group_of;                   // [event]: of a call in a group its end, else -1
  std::vector<bool> calm;                      // [communicator]: nothing disturbs it
  bool tidy = true;                            // everything is destroyed and freed in the end
  std::vector<int> dies;                       // [rank]: the event that kills it, or -1

  bool takes_part(int event, int rank) const {
    return allowed[static_cast<size_t>(event)][static_cast<size_t>(rank)] != 0;
  }
};

// Pure. What is wrong with the program stands in `invalid`.
Model make_model(const Program& program);

// A call that nobody gets out of before all have come to it.
bool waits_for_all(const Event& event);
// The communicator's members, and where a rank is among them (-1: it is not).
int place_of(const Comm& comm, int rank);

}  // namespace random_programs
