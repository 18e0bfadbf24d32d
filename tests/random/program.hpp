// program.hpp: a random program as data: its ranks and their threads, and one list of events that
// all of them share.
//
// The list is an order in which the program could run one event at a time. Every thread of every
// rank runs the events that are its own in that order, so whatever blocks waits for something
// earlier in the list, and a library that keeps its word cannot hang. Ranks are the program's
// everywhere (also roots and peers), so that one of them can be taken out.
// tests/random/program_text.cpp: as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace random_programs {

// What an event does. The names of this and of the next in text: tests/random/program_text.cpp, in
// the same order.
enum class Action {
  init,          // members come together in a new job; makes one communicator. what: How
  split,         // by colors and keys; makes one communicator for each color
  dup,           //
  create_group,  // `members` make a communicator of their own, out of one of theirs
  call,          // a collective. what: Collective; work >= 0: nonblocking
  message,       // rank sends to peer
  wait,          // for a work. what: Wait
  free_work,     //
  group_begin,   // of thread `thread` of `ranks`, until the group_end
  group_end,     //
  bad_call,      // of one rank; what: Bad
  query,         // rank, size and state of a communicator
  abort,         // by one rank, in any thread
  kill,          // a rank kills itself
  fork_child,    // of one rank; what: Child
  settle,        // until all survivors know the dead of a communicator
  finalize,      //
  destroy        //
};

// Event's `what`, by action, and its `memory` and `deviation`.
enum class How { id, env };
enum class Wait { forever, test, short_turns, look, inside_group };
enum class Bad { root, peer, op, type, null_buffer, null_work, foreign_op };
enum class Child { leaves, exits, calls, destroys };
enum class Collective {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  all_gather_v,
  reduce_scatter_v,
  gather_v,
  scatter_v,
  all_to_all_v
};
enum class Memory { plain, odd, sennit, registered };  // odd: at an odd address
enum class Deviation { none, count, type, op, collective };

inline constexpr int kPremulSum = 8;  // beside sennit_op_t's

// Which fields matter depends on the action; those that are -1 or empty are not set.
struct Event {
  Action action = Action::query;
  int comm = -1;    // on which communicator
  int made = -1;    // the number of the first communicator that it makes
  int work = -1;    // the number of the work that it starts, or is about
  int what = 0;     // by action
  int type = 0;     // sennit_type_t
  int op = 0;       // sennit_op_t or kPremulSum
  int root = -1;    //
  int count = 0;    // elements; v-variants: at most as many a block
  int rank = -1;    // who does it, where it is one rank's; the sender
  int peer = -1;    // the receiver
  int tag = 0;      // of a message, or of a group that is made
  int any = 0;      // a message that is received from any source
  int thread = -1;  // in which thread; else in the communicator's
  int memory = 0;   //
  int in_place = 0;
  int gaps = 0;               // v-variants: with displacements
  int deviation = 0;          // how the `deviants` call
  std::vector<int> deviants;  //
  std::vector<int> ranks;     // only these of those that would
  std::vector<int> members;   // init, create_group: by rank in what is made
  std::vector<int> colors;    // split: by the program's rank
  std::vector<int> keys;      //
  std::vector<int> threads;   // of the communicators that it makes: in which thread they are used
  // abort, kill: events of the same rank, in other threads, that come before
  std::vector<int> after;
  bool operator==(const Event&) const = default;
};

// A whole program. The seed says where it comes from, and is not used when it runs.
struct Program {
  uint64_t seed = 0;
  std::string transport;             // its name; some have all ranks in one process
  std::vector<int> threads;          // by rank: how many it has
  std::vector<std::string> options;  // NAME=VALUE
  std::vector<Event> events;
  bool operator==(const Program&) const = default;

  int ranks() const { return static_cast<int>(threads.size()); }
};

// A line for the program and one for each event. parse() gives back what to_text() was given, and
// leaves out what stands behind a '#'. It throws std::runtime_error.
std::string to_text(const Program& program);
std::string to_text(const Event& event);
Program parse(const std::string& text);

// What a deviant calls.
Event as_called_by(const Event& event, int rank);

}  // namespace random_programs
