// work.hpp: a call under way.
//
// Made by Communicator::prepare, started by start(); keeps its communicator alive. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/call/call.hpp"
#include "api/call/self_messages.hpp"
#include "api/call/stream_calls.hpp"
#include "api/preparation.hpp"
#include "base/status.hpp"
#include "engine/execution.hpp"

namespace sennit {

class Communicator;
class Context;

class Work {
 public:
  // `ready`: what the call was prepared to, for `target`.
  Work(std::shared_ptr<Communicator> communicator, const Call& call, const StreamTarget& target,
       Preparation::Ready ready);
  // Waits for it if it was started.
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Once. `nonblocking`: somebody else than its caller has to drive it.
  void start(bool nonblocking);
  // On device memory: where it goes. Before start() it gets its place there from `calls`, and after
  // all of them are started those are enqueued; an error leaves it not started.
  const StreamTarget& target() const { return target_; }
  Status take_place(StreamCalls& calls);
  // In place of start(): it is never made, and this is its result.
  void give_up(const Status& why);
  const Context& context() const;
  const Communicator& communicator() const { return *communicator_; }
  const std::shared_ptr<Communicator>& shared_communicator() const { return communicator_; }
  uint64_t predicted_ns() const;             // before it is started; 0: a message to oneself
  bool started() const { return started_; }  // not yet: its group is still open
  bool done() const;
  // Somebody has its handle, and finishes it.
  void has_handle() { handle_ = true; }
  // Nobody has it any more, before the work is started.
  void loses_handle() { handle_ = false; }
  bool is_handled() const { return handle_; }
  // Started, it is part of a graph from then on, and is made when that is launched. Nobody waits
  // for it; it is done when its graph is gone, and finish() takes it out of the graph before.
  bool is_captured() const { return target_.in_graph && ready_.execution; }
  // A message to oneself that has been started, and nothing has met it.
  bool lacks_other_half() const;
  // Drives the engine; false when the time is over (negative: no limit).
  bool wait(int64_t timeout_ns);
  bool test();  // drives it once; whether it is done
  // The caller's time for it is over, after waited_ms: unless it is done, its communicator fails on
  // all ranks, and the error names who has not made the call.
  void expire(int64_t waited_ms);
  Status finish();  // after wait() or test() was true: the result; gives the execution back
  bool is_message() const { return call_.collective == Collective::send_recv; }
  bool receives() const { return is_message() && call_.receiving; }
  int source() const { return source_; }  // after finish(), of a receive: the rank at its other end

 private:
  friend class Communicator;
  friend class StartedWorks;
  friend class WorkStarter;

  const std::shared_ptr<Communicator> communicator_;
  const Call call_;
  const StreamTarget target_;
  Preparation::Ready ready_;
  SelfMessages::Matched self_matched_;        // of a message to oneself
  StreamCalls* stream_calls_ = nullptr;       // between take_place() and start()
  std::shared_ptr<StreamPlace> place_;        // there as well
  std::shared_ptr<StreamPlace> graph_place_;  // of a captured one, once it is started
  bool started_ = false;
  bool finished_ = false;
  bool handle_ = false;
  size_t outstanding_at_ = 0;  // among the communicator's outstanding works
  uint64_t started_ns_ = 0;
  int source_ = -1;
  Status result_;
};

}  // namespace sennit
