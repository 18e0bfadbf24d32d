// stream_place.hpp: the place in a stream at which a call on device memory, or a group of such
// calls, does its local work.
//
// The calls of a group share one place: behind each other in the stream, the first would wait for
// messages that the peer's second one sends. Nothing of them begins before the stream has come
// here, and the stream goes on when the last of them is done. All calls are made under the engine's
// lock, but for those of the constructor and worker().enqueue(), which come from the caller's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "accelerator/accelerator.hpp"

namespace sennit {

class Execution;

class StreamPlace {
 public:
  // `in_graph`: the stream comes here once for each time that the graph is launched, and each time
  // all that have joined are made again, until they are dropped.
  StreamPlace(std::unique_ptr<StreamWorker> worker, bool in_graph)
      : worker_(std::move(worker)), in_graph_(in_graph) {}
  StreamPlace(const StreamPlace&) = delete;
  StreamPlace& operator=(const StreamPlace&) = delete;

  StreamWorker& worker() { return *worker_; }
  bool in_graph() const { return in_graph_; }
  // The execution works here from now on. Returns its number, which its tokens begin with.
  uint32_t join(Execution& execution);
  // Not in a graph: `told` is called once: when the stream has come here, so that what was put into
  // it before is over, or with why it never will.
  using WhenReached = std::function<void(const Status&)>;
  void when_reached(WhenReached told) { waiting_.push_back(std::move(told)); }
  // A token of the execution of this number, for StreamWorker::submit().
  static uint64_t token(uint32_t number, uint32_t own) { return uint64_t{number} << 32 | own; }
  // Tells executions that the stream has come here, and what of their work is done. Whether
  // anything was to tell.
  bool poll();
  // This execution is done; of the last one the stream goes on, once the place is closed.
  void leave(uint32_t number);
  // No more join it, and it may be enqueued. False: all that did have left, and nobody waits for
  // it, so it need not be.
  bool close();
  // Nothing will be done here any more, and nobody waits for it.
  bool left() const {
    return closed_ && working_ == 0 && waiting_.empty() && (!in_graph_ || joined_ == 0);
  }
  // The stream has not come here yet, as far as poll() has seen.
  bool waits() const { return !reached_; }
  // It will not come: everything that works here or waits for it ends with this.
  void fail(const Status& why);
  // Where the device has failed everything ends here, what it had been told to do as well. Whether
  // it has.
  bool end_if_lost();
  // In a graph: those of this communicator are not made again. One that is being made is dropped
  // when it is done.
  void drop(uint32_t comm);
  void drop(const Execution& execution);

 private:
  struct Joined {
    Execution* execution;  // null: it has left, or is dropped
    bool works = false;
    bool last = false;  // in a graph: it is not made again
  };
  void replay();
  template <typename Which>
  void drop_those(Which&& which);
  void tell_waiting(const Status& reached);

  const std::unique_ptr<StreamWorker> worker_;
  const bool in_graph_;
  std::vector<Joined> executions_;  // by number
  size_t joined_ = 0;               // of them, those that have not left for good
  size_t working_ = 0;
  bool closed_ = false;
  bool reached_ = false;
  std::vector<WhenReached> waiting_;  // for the stream to come here
  std::vector<uint64_t> done_;        // what poll() has just heard of
};

}  // namespace sennit
