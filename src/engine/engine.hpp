// engine.hpp: the data engine of one rank: its transports, the executions under way, and how to
// wait for them.
//
// One lock. Whoever waits for a work drives the engine itself: progress, then spin, yield and at
// last sleep until a transport's descriptor or the wake-up descriptor is readable. A helper thread
// drives it only while nobody waits and either nonblocking work is outstanding or there is a
// transport that moves nothing by itself (ucx), which peers need driven; else it is parked. The
// control plane's thread calls
// fail_* from outside. Peers are world ranks; the transport for each is chosen at first use: the
// first, by falling priority, that reaches it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/trace.hpp"
#include "engine/execution.hpp"
#include "transports/transport.hpp"

namespace sennit {

class Engine {
 public:
  // What the engine tells the job; called under the lock, must not call back.
  struct Callbacks {
    std::function<void(int peer, const Status& what)> suspect;
    std::function<void(Execution& execution)> stalled;
    std::function<void(Execution& execution, int peer)> mismatch;
    // An execution failed for a reason of this rank's own; called without the lock. The
    // communicator must fail.
    std::function<void(uint32_t comm, const Status& status)> failed_here;
  };

  // core_each: every rank of this host has a core to itself.
  Engine(bool core_each, size_t in_flight_bytes, uint64_t stall_ns, Callbacks callbacks);
  ~Engine();

  // At start, before anything runs. addresses[rank][i] belongs to transport i; empty where that
  // rank lacks it. `missing`: what transports that could not be started said, for the error about
  // an unreachable peer.
  void set_transports(std::vector<std::unique_ptr<Transport>> transports, std::string missing = "");
  void set_addresses(std::vector<std::vector<std::vector<std::byte>>> addresses);

  // ---- any thread, without the lock ----
  void start(Execution& execution, uint32_t seq, bool point_to_point, bool nonblocking);
  // The short way of a small blocking call: starts the execution and drives it as long as its
  // messages come soon. False: it goes on the general way, wait() for it. `failed` is the
  // communicator's.
  bool run_small(Execution& execution, uint32_t seq, const std::atomic<bool>& failed);
  // Drives until done(), or until timeout_ns has passed (negative: no limit). False on time-out.
  bool wait(const std::function<bool()>& done, int64_t timeout_ns);
  bool progress();  // once
  // From now on the helper lets transports answer their peers also while no call of this process is
  // under way.
  void answer_while_idle();
  void fail_communicator(uint32_t comm, const Status& status);
  void fail_peer(int peer, const Status& status);
  void forget(const std::function<bool(uint32_t comm)>& over);  // see Transport
  void wake();
  void stop_helper();  // nothing is under way any more; no callback comes after it
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // Exposable where a transport can, else plain; zeroed, 64-byte aligned; no more than there is.
  Result<void*> allocate_user(size_t bytes);
  bool free_user(void* memory);
  // What the transports can do for memory of the user's own. The same range again counts as one
  // more.
  Status register_user(void* memory, size_t bytes);
  Status deregister_user(void* memory);
  std::string statistics();

  // ---- under the lock, for executions ----
  void send(SendRequest& request);
  void recv(RecvRequest& request);
  void release(RecvRequest& request);
  void failed_here(uint32_t comm, const Status& status) { failed_here_.emplace_back(comm, status); }
  void mismatch(Execution& execution, int peer) { callbacks_.mismatch(execution, peer); }
  size_t in_flight_bytes() const { return in_flight_bytes_; }
  Trace& trace() { return trace_; }
  Transport* transport(int peer) { return route(peer); }
  Result<std::byte*> allocate_scratch(size_t bytes);
  void free_scratch(std::byte* memory, size_t bytes);

 private:
  struct Route {
    Transport* transport = nullptr;
    bool resolved = false;
    std::string trouble;  // what the transports that were tried said
  };
  struct ScratchBlock {
    std::byte* memory;
    size_t bytes;
  };
  Result<void*> allocate(size_t bytes);
  Transport* route(int peer);
  Status unreachable(int peer) const;
  bool progress_locked(bool tending = false);
  void collect_done();
  void tell_failures(std::unique_lock<std::mutex>& guard);  // unlocks where there are any
  void check_stalls(uint64_t now);
  void sleep(uint32_t naps, bool tending = false);
  void start_helper();
  void helper();

  std::mutex mutex_;
  const Callbacks callbacks_;
  const size_t in_flight_bytes_;
  const uint64_t stall_ns_;
  std::atomic<uint32_t> spins_ = 0, yields_ = 0;  // read without the lock
  uint32_t small_spins_ = 0;
  uint32_t small_calls_ = 0;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::string missing_;     // of transports that could not be started
  std::vector<bool> used_;  // by transport: a peer is reached over it
  // by transport: its peers need it driven, also while nobody waits here
  std::vector<bool> tended_;
  bool tends_ = false;  // one of them is
  std::vector<std::vector<std::vector<std::byte>>> addresses_;
  std::vector<Route> routes_;
  std::vector<Execution*> running_;
  // to peers that no transport reaches, until that is decided on
  std::vector<SendRequest*> unreachable_sends_;
  std::vector<RecvRequest*> unreachable_receives_;
  std::vector<std::pair<uint32_t, Status>> failed_here_;  // not told yet
  std::vector<ScratchBlock> scratch_pool_;
  std::vector<void*> plain_user_;
  struct Registered {
    size_t bytes;
    uint64_t times;
  };
  std::map<std::byte*, Registered> registered_;  // by address, never overlapping
  Completions completions_;
  Trace trace_;
  uint64_t last_stall_check_ns_ = 0;
  int wake_fd_ = -1;
  std::atomic<int> waiters_{0};
  std::atomic<int> nonblocking_{0};  // executions started nonblocking and not done
  std::vector<Execution*> nonblocking_running_;
  std::condition_variable helper_wake_;
  bool answers_while_idle_ = false;
  bool stopping_ = false;
  std::thread helper_;
};

}  // namespace sennit
