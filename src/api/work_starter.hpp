// work_starter.hpp: how a work that is prepared gets under way: a collective call by its number and
// under the plan that all ranks run this number by, a message by its peer and tag; and its place in
// a stream, or in a graph.
//
// Any thread. What messages of one rank to itself wait for has a lock of its own (SelfMessages);
// the rest is behind the engine's. None is held while this rank waits for others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "api/call/self_messages.hpp"
#include "api/call/stream_calls.hpp"
#include "api/preparation.hpp"
#include "api/state/communicator_state.hpp"
#include "api/work.hpp"
#include "base/status.hpp"
#include "control/control_plane.hpp"
#include "engine/engine.hpp"
#include "engine/mailbox.hpp"

namespace sennit {

class WorkStarter {
 public:
  // All of it outlives this.
  WorkStarter(CommunicatorState& state, Preparation& preparation, Engine& engine, Control& control)
      : state_(state),
        preparation_(preparation),
        engine_(engine),
        control_(control),
        mailbox_(engine, state.id(), state.others()) {}
  WorkStarter(const WorkStarter&) = delete;
  WorkStarter& operator=(const WorkStarter&) = delete;

  // Once a work. One that is captured becomes part of the graph, and is made when that is launched.
  // What goes wrong fails the communicator.
  void start(Work& work, bool nonblocking);
  // A captured one is not made again; waits until it is not under way.
  void leave_graph(Work& work);
  // The result of a message to oneself. Where the other half has come only now, its copy is waited
  // for; where it has not, this half is withdrawn.
  Status end_self_message(const Work& work);

  // What runs call `seq`, which is undecided and was to run `made`; null: that one, or the
  // communicator has failed. Waits until it is known by which plan all ranks run this number.
  std::unique_ptr<Execution> planned_anew(uint32_t seq, Execution& made,
                                          const StreamTarget& target);

 private:
  void start_execution(Work& work, bool nonblocking);
  void start_self_message(Work& work);
  void tell_when_over(StreamPlace& place, std::function<void()> over);
  Status capture(Work& work);
  Status join_place(Work& work);
  // The number of a collective call that begins, whose execution may be another from then on.
  uint32_t number_call(Work& work);
  void wait_until_settled(uint32_t seq);

  CommunicatorState& state_;
  Preparation& preparation_;
  Engine& engine_;
  Control& control_;
  Mailbox mailbox_;  // of messages between two ranks; behind the engine's lock
  SelfMessages self_messages_;
};

}  // namespace sennit
