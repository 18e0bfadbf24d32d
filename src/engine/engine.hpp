// engine.hpp: the data engine of one rank: the executions under way, what drives them, and how to
// wait for them.
//
// One lock. Whoever waits for a work drives the engine itself: progress, then spin, yield and at
// last sleep until a transport's descriptor or the wake-up descriptor is readable. A helper thread
// drives it only while nobody waits and either nonblocking work is outstanding or there is a
// transport that moves nothing by itself (ucx), which peers need driven; else it is parked. To wake
// it costs more than a small call, so only long ones do that: for others it looks every millisecond
// while there are any. Whoever moves something wakes those who wait, unless it looks on until
// nothing moves: it may have taken what would have woken them. The control plane's thread calls
// fail_* from outside. Peers are world ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "engine/execution.hpp"
#include "engine/mailbox.hpp"
#include "engine/memory_pool.hpp"
#include "engine/routes.hpp"
#include "engine/sleeper.hpp"
#include "engine/stall_watch.hpp"
#include "record/trace.hpp"
#include "transports/transport.hpp"

namespace sennit {

class Engine {
 public:
  // What the engine tells; called under the lock, must not call back.
  struct Callbacks {
    std::function<void(int peer, const Status& what)> suspect;
    std::function<void(Execution& execution)> stalled;
    std::function<void(Execution& execution, int peer)> mismatch;
    // An execution failed for a reason of this rank's own; called without the lock. The
    // communicator must fail.
    std::function<void(uint32_t comm, const Status& status)> failed_here;
  };

  // core_each: every rank of this machine has a core to itself. in_flight_bytes: as much may be
  // under way to a peer (SENNIT_IN_FLIGHT_BYTES). stall_ns: as in StallWatch. recording: of what
  // the rank does.
  Engine(bool core_each, size_t in_flight_bytes, uint64_t stall_ns, Callbacks callbacks,
         std::unique_ptr<Recording> recording = Recording::in_memory());
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // At start, before anything runs. addresses[rank][i] belongs to transport i; empty where that
  // rank lacks it. `missing`: what transports that could not be started said, for the error about
  // an unreachable peer.
  void set_transports(std::vector<std::unique_ptr<Transport>> transports, std::string missing = "")
      SENNIT_EXCLUDES(mutex_);
  void set_addresses(std::vector<std::vector<std::vector<std::byte>>> addresses)
      SENNIT_EXCLUDES(mutex_);

  // The lock; execution.hpp says what is done under it.
  Mutex& mutex() SENNIT_RETURNS_MUTEX(mutex_) { return mutex_; }

  // ---- any thread, without the lock ----
  // Starts an execution that is not under way, which outlives it being so. `seq`: the number of the
  // call on the communicator. nonblocking: the helper drives it while nobody waits. What fails at
  // once has been told when this returns.
  void start(Execution& execution, uint32_t seq, bool nonblocking) SENNIT_EXCLUDES(mutex_);
  // The same for one message, to or from a world rank. A receive may be from Mailbox::kAnySource.
  void start_send(Execution& execution, Mailbox& mailbox, int peer, uint32_t tag, bool nonblocking)
      SENNIT_EXCLUDES(mutex_);
  void start_receive(Execution& execution, Mailbox& mailbox, int peer, uint32_t tag,
                     bool nonblocking) SENNIT_EXCLUDES(mutex_);
  // Looks at the place from now on, until all that work there have left. Before it is enqueued,
  // which is for nothing where this is false: all have left.
  bool watch(std::shared_ptr<StreamPlace> place) SENNIT_EXCLUDES(mutex_);
  // In a graph: the execution is not made again. Waits until it is not under way.
  void drop(Execution& execution) SENNIT_EXCLUDES(mutex_);
  // It could not be enqueued.
  void fail_place(StreamPlace& place, const Status& why) SENNIT_EXCLUDES(mutex_);
  // The short way of a small blocking call: starts the execution and drives it as long as its
  // messages come soon. False: it goes on the general way, wait() for it. `failed` is the
  // communicator's.
  bool run_small(Execution& execution, uint32_t seq, const std::atomic<bool>& failed)
      SENNIT_EXCLUDES(mutex_);
  // Drives until done(), or until timeout_ns has passed (negative: no limit). False on time-out.
  bool wait(const std::function<bool()>& done, int64_t timeout_ns) SENNIT_EXCLUDES(mutex_);
  bool progress() SENNIT_EXCLUDES(mutex_);  // once
  // From now on the helper lets transports answer their peers also while no call of this process is
  // under way.
  void answer_while_idle() SENNIT_EXCLUDES(mutex_);
  // The communicator's executions, and all requests of theirs, end with `status`.
  void fail_communicator(uint32_t comm, const Status& status) SENNIT_EXCLUDES(mutex_);
  // All requests to and from the peer end with `status`, also later ones.
  void fail_peer(int peer, const Status& status) SENNIT_EXCLUDES(mutex_);
  // See Transport.
  void forget(const std::function<bool(uint32_t comm)>& over) SENNIT_EXCLUDES(mutex_);
  void wake() { sleeper_.wake(); }  // ends the sleep of all who wait
  void wake_waiters() {
    if (waiters_ > 0) wake();
  }
  // Nothing is under way any more; no callback comes after it.
  void stop_helper() SENNIT_EXCLUDES(mutex_);
  // Exposable where a transport can, else plain; zeroed, 64-byte aligned; no more than there is.
  Result<void*> allocate_user(size_t bytes) SENNIT_EXCLUDES(mutex_);
  bool free_user(void* memory) SENNIT_EXCLUDES(mutex_);
  // What the transports can do for memory of the user's own. The same range again counts as one
  // more.
  Status register_user(void* memory, size_t bytes) SENNIT_EXCLUDES(mutex_);
  Status deregister_user(void* memory) SENNIT_EXCLUDES(mutex_);
  // Has the device map what peers' devices export, as far as it can be done now. Of a rank's
  // devices the first one does that.
  void map_peers_memory(Accelerator& accelerator) SENNIT_EXCLUDES(mutex_);
  std::string statistics() SENNIT_EXCLUDES(mutex_);
  // Its note(), trouble() and end() are for any thread without the lock.
  Recording& recording() SENNIT_NO_THREAD_SAFETY_ANALYSIS { return trace_.recording(); }

  // ---- under the lock, for executions ----
  // Tells the analysis that the caller, which it cannot follow up to the engine, holds the lock.
  void assert_locked() const SENNIT_ASSERT_HELD(mutex_) {}
  // As Transport's, over the one that reaches the peer. What none reaches is told to `suspect`, and
  // waits for fail_communicator().
  void send(SendRequest& request) SENNIT_REQUIRES(mutex_);
  void recv(RecvRequest& request) SENNIT_REQUIRES(mutex_);
  void release(RecvRequest& request) SENNIT_REQUIRES(mutex_);
  bool has_come(int peer, const Key& key) SENNIT_REQUIRES(mutex_);
  // The communicator is to fail; told once the lock is free.
  void failed_here(uint32_t comm, const Status& status) SENNIT_REQUIRES(mutex_) {
    failed_here_.emplace_back(comm, status);
  }
  // It is under way from now on.
  void takes_up(Execution& execution, bool nonblocking) SENNIT_REQUIRES(mutex_);
  void mismatch(Execution& execution, int peer) SENNIT_REQUIRES(mutex_) {
    callbacks_.mismatch(execution, peer);
  }
  size_t in_flight_bytes() const { return in_flight_bytes_; }
  Trace& trace() SENNIT_REQUIRES(mutex_) { return trace_; }
  bool maps_for(const Accelerator& accelerator) const SENNIT_REQUIRES(mutex_) {
    return importer_ == &accelerator;
  }
  // Null: none reaches it.
  Transport* transport(int peer) SENNIT_REQUIRES(mutex_) { return route(peer); }
  Result<MemoryPool::Scratch> allocate_scratch(size_t bytes) SENNIT_REQUIRES(mutex_) {
    return memory_.take_scratch(bytes);
  }
  void free_scratch(const MemoryPool::Scratch& scratch) SENNIT_REQUIRES(mutex_) {
    memory_.give_back_scratch(scratch);
  }

 private:
  using Failures = std::vector<std::pair<uint32_t, Status>>;  // by communicator

  Transport* route(int peer) SENNIT_REQUIRES(mutex_);
  bool progress_locked(Routes::Driven which = Routes::Driven::used) SENNIT_REQUIRES(mutex_);
  void tell_helper(const Execution& execution) SENNIT_REQUIRES(mutex_);
  bool look_into_mailboxes() SENNIT_REQUIRES(mutex_);
  bool look_at_places() SENNIT_REQUIRES(mutex_);
  bool forget_places() SENNIT_REQUIRES(mutex_);
  void collect_done() SENNIT_REQUIRES(mutex_);
  Failures started(const Execution& execution, bool nonblocking) SENNIT_REQUIRES(mutex_);
  Failures take_failures() SENNIT_REQUIRES(mutex_) { return std::exchange(failed_here_, {}); }
  void tell(const Failures& failures) SENNIT_EXCLUDES(mutex_);
  bool poll_small(Execution& execution, const std::atomic<bool>& failed) SENNIT_REQUIRES(mutex_);
  void check_stalls(uint64_t now) SENNIT_REQUIRES(mutex_);
  bool sleep(uint32_t naps, Routes::Awaited awaited, uint64_t wakes, int64_t most_ns)
      SENNIT_EXCLUDES(mutex_);
  void start_helper() SENNIT_REQUIRES(mutex_);
  void helper() SENNIT_EXCLUDES(mutex_);
  bool has_to_drive() const SENNIT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  const Callbacks callbacks_;
  const size_t in_flight_bytes_;
  std::atomic<uint32_t> spins_;   // without progress, before it yields; read without the lock
  std::atomic<uint32_t> yields_;  // before it sleeps
  const uint32_t yields_where_all_wake_;  // the same, where every transport in use wakes it
  const uint32_t small_spins_;            // the same on the short way
  uint32_t small_calls_ SENNIT_GUARDED_BY(mutex_) = 0;
  // Outlives the routes: transports may look at memory until they end.
  MemoryPool memory_ SENNIT_GUARDED_BY(mutex_);
  Routes routes_ SENNIT_GUARDED_BY(mutex_);
  std::vector<Execution*> running_ SENNIT_GUARDED_BY(mutex_);
  std::vector<Mailbox*> mailboxes_ SENNIT_GUARDED_BY(mutex_);  // in which a receive waits
  std::vector<std::shared_ptr<StreamPlace>> places_ SENNIT_GUARDED_BY(mutex_);  // being worked at
  size_t graphs_ SENNIT_GUARDED_BY(mutex_) = 0;  // of places_, those in graphs
  Accelerator* importer_ SENNIT_GUARDED_BY(mutex_) = nullptr;
  std::vector<std::byte*> imports_ SENNIT_GUARDED_BY(mutex_);  // of importer_
  // To peers that no transport reaches, until that is decided on.
  std::vector<SendRequest*> unreachable_sends_ SENNIT_GUARDED_BY(mutex_);
  std::vector<RecvRequest*> unreachable_receives_ SENNIT_GUARDED_BY(mutex_);
  Failures failed_here_ SENNIT_GUARDED_BY(mutex_);  // not told yet
  Completions completions_ SENNIT_GUARDED_BY(mutex_);
  Trace trace_ SENNIT_GUARDED_BY(mutex_);
  StallWatch stall_watch_ SENNIT_GUARDED_BY(mutex_);
  Sleeper sleeper_;
  std::atomic<int> waiters_{0};
  std::atomic<int> nonblocking_{0};  // executions started nonblocking and not done
  std::vector<Execution*> nonblocking_running_ SENNIT_GUARDED_BY(mutex_);
  Condition helper_wake_;
  // How often the helper looks for something to drive before it waits to be told.
  int helper_looks_ SENNIT_GUARDED_BY(mutex_) = 0;
  bool answers_while_idle_ SENNIT_GUARDED_BY(mutex_) = false;
  bool stopping_ SENNIT_GUARDED_BY(mutex_) = false;
  bool said_helpless_ SENNIT_GUARDED_BY(mutex_) = false;  // that there is no thread for the helper
  std::thread helper_;  // made under the lock, joined by stop_helper()
};

}  // namespace sennit
