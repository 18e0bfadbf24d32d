#include "engine/engine.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sennit {
namespace {

constexpr uint64_t kStallCheckNs = 50'000'000;

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Engine::Engine(bool core_each, size_t in_flight_bytes, uint64_t stall_ns, Callbacks callbacks)
    : callbacks_(std::move(callbacks)), in_flight_bytes_(in_flight_bytes), stall_ns_(stall_ns) {
  // Spinning is polite only where every rank of this host has a core to itself.
  spins_ = core_each ? 2000 : 20;
  small_spins_ = core_each ? 1000 : 0;
  yields_ = 200;
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
}

void Engine::stop_helper() {
  {
    const auto guard = lock();
    stopping_ = true;
  }
  helper_wake_.notify_all();
  wake();
  if (helper_.joinable()) helper_.join();
}

Engine::~Engine() {
  stop_helper();
  for (const ScratchBlock& block : scratch_pool_) free_user(block.memory);
  transports_.clear();
  for (void* memory : plain_user_) std::free(memory);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void Engine::set_transports(std::vector<std::unique_ptr<Transport>> transports,
                            std::string missing) {
  const auto guard = lock();
  transports_ = std::move(transports);
  missing_ = std::move(missing);
  used_.assign(transports_.size(), false);
  tended_.clear();
  for (const auto& transport : transports_) {
    tended_.push_back(!transport->withdraws_at_once() && transport->event_fd() >= 0);
    tends_ = tends_ || tended_.back();
  }
  if (tends_) start_helper();
}

void Engine::set_addresses(std::vector<std::vector<std::vector<std::byte>>> addresses) {
  const auto guard = lock();
  addresses_ = std::move(addresses);
  routes_.assign(addresses_.size(), {});
}

Transport* Engine::route(int peer) {
  Route& route = routes_[static_cast<size_t>(peer)];
  if (route.resolved) return route.transport;
  route.resolved = true;
  const auto& addresses = addresses_[static_cast<size_t>(peer)];
  const auto trouble = [&](size_t i, const std::string& what) {
    route.trouble += fmt::format("; {}: {}", transports_[i]->name(), what);
  };
  for (size_t i = 0; i < transports_.size() && !route.transport; i++) {
    if (i >= addresses.size() || addresses[i].empty()) {
      trouble(i, fmt::format("rank {} does not use it", peer));
      continue;
    }
    if (transports_[i]->reach(peer, addresses[i]) == Reach::none) {
      trouble(i, transports_[i]->obstacle());
      continue;
    }
    if (const Status added = transports_[i]->add_peer(peer, addresses[i]); !added.ok()) {
      trouble(i, added.text());
      continue;
    }
    route.transport = transports_[i].get();
    used_[i] = true;
    // Where the kernel wakes the waiter, looking in vain costs a system call and the cores of other
    // processes.
    if (transports_[i]->event_fd() >= 0)
      spins_ = std::min(spins_.load(), 1u), yields_ = std::min(yields_.load(), 10u);
  }
  return route.transport;
}

// The control plane knows whether the peer is dead, has left, or only cannot be reached; it
// decides.
Status Engine::unreachable(int peer) const {
  return {SENNIT_LINK_FAILED,
          fmt::format("no transport reaches rank {} (SENNIT_TRANSPORTS says which may be used){}{}",
                      peer, routes_[static_cast<size_t>(peer)].trouble, missing_)};
}

void Engine::send(SendRequest& request) {
  if (Transport* transport = route(request.peer)) {
    transport->send(request);
    return;
  }
  unreachable_sends_.push_back(&request);
  callbacks_.suspect(request.peer, unreachable(request.peer));
}

void Engine::recv(RecvRequest& request) {
  if (Transport* transport = route(request.peer)) {
    transport->recv(request);
    return;
  }
  unreachable_receives_.push_back(&request);
  callbacks_.suspect(request.peer, unreachable(request.peer));
}

void Engine::release(RecvRequest& request) { route(request.peer)->release(request); }

void Engine::start(Execution& execution, uint32_t seq, bool point_to_point, bool nonblocking) {
  const auto guard = lock();
  execution.last_progress_ns = now_ns();
  execution.last_report_ns = 0;
  execution.awaited = !nonblocking;
  running_.push_back(&execution);
  if (nonblocking) {
    nonblocking_running_.push_back(&execution);
    nonblocking_++;
    start_helper();
  }
  execution.start(seq, point_to_point);
  collect_done();
  if (nonblocking) helper_wake_.notify_one();
}

bool Engine::run_small(Execution& execution, uint32_t seq, const std::atomic<bool>& failed) {
  std::unique_lock guard(mutex_);
  if (!running_.empty()) {  // those need the transports' progress() too
    guard.unlock();
    start(execution, seq, false, false);
    return false;
  }
  running_.push_back(&execution);
  execution.start_small(seq);
  for (uint32_t idle = 0; !execution.done() && execution.poll_small(); idle++) {
    if (execution.done() || failed.load(std::memory_order_relaxed) ||
        idle >= small_spins_ + yields_)
      break;
    if (idle < small_spins_) {
      if (idle >= 64) cpu_relax();
      continue;
    }
    // others see it now, and look for stalls
    if (idle == small_spins_) execution.last_progress_ns = now_ns();
    guard.unlock();
    sched_yield();
    guard.lock();
  }
  if (!execution.done()) {
    execution.last_progress_ns = now_ns();
    execution.last_report_ns = 0;
    execution.leave_small();
  }
  const bool done = execution.done();
  if (done && running_.size() == 1)
    running_.clear();
  else
    collect_done();
  if ((++small_calls_ & 63) == 0) progress_locked();  // what transports do from time to time
  tell_failures(guard);
  return done;
}

bool Engine::progress_locked(bool tending) {
  bool moved = false;
  for (size_t i = 0; i < transports_.size(); i++)
    if (used_[i] || (tending && tended_[i])) moved |= transports_[i]->progress(completions_);
  if (completions_.sends.empty() && completions_.receives.empty() && completions_.events.empty())
    return moved;
  const uint64_t now = now_ns();
  // Completions may start new requests, but new completions come out of the next progress() only.
  Completions completions;
  std::swap(completions, completions_);
  for (RecvRequest* request : completions.receives) {
    auto* execution = static_cast<Execution*>(request->owner);
    execution->last_progress_ns = now;
    execution->receive_done(*request);
  }
  for (SendRequest* request : completions.sends) {
    auto* execution = static_cast<Execution*>(request->owner);
    execution->last_progress_ns = now;
    execution->send_done(*request);
  }
  for (const PeerEvent& event : completions.events) callbacks_.suspect(event.peer, event.status);
  completions.clear();
  // keep the capacity
  if (completions_.sends.empty() && completions_.receives.empty() && completions_.events.empty())
    std::swap(completions, completions_);
  collect_done();
  return true;
}

void Engine::collect_done() {
  const size_t done = std::erase_if(running_, [](Execution* e) { return e->done(); });
  // another thread may be asleep waiting for what this one completed
  if (done > 0 && waiters_ > 1) wake();
  if (nonblocking_running_.empty()) return;
  nonblocking_ -=
      static_cast<int>(std::erase_if(nonblocking_running_, [](Execution* e) { return e->done(); }));
}

void Engine::tell_failures(std::unique_lock<std::mutex>& guard) {
  if (failed_here_.empty()) return;
  const auto failures = std::exchange(failed_here_, {});
  guard.unlock();
  for (const auto& [comm, status] : failures) callbacks_.failed_here(comm, status);
}

bool Engine::progress() {
  std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard.owns_lock()) return false;
  const bool moved = progress_locked();
  tell_failures(guard);
  return moved;
}

void Engine::check_stalls(uint64_t now) {
  if (now - last_stall_check_ns_ < kStallCheckNs) return;
  last_stall_check_ns_ = now;
  bool stalled = false;
  for (Execution* execution : running_) {
    const uint64_t since = std::max(execution->last_progress_ns, execution->last_report_ns);
    if (now - since < stall_ns_) continue;
    const bool again = execution->last_report_ns > execution->last_progress_ns;
    execution->stalled_ns = execution->awaited ? (again ? execution->stalled_ns : 0) +
                                                     std::min(now - since, 2 * stall_ns_)
                                               : 0;
    execution->last_report_ns = now;
    callbacks_.stalled(*execution);
    stalled = true;
  }
  for (size_t i = 0; stalled && i < transports_.size(); i++)
    if (used_[i]) transports_[i]->stalled();
}

bool Engine::wait(const std::function<bool()>& done, int64_t timeout_ns) {
  if (done()) return true;
  const uint64_t begin = timeout_ns >= 0 ? now_ns() : 0;
  waiters_++;
  bool completed = false;
  for (uint32_t idle = 0;;) {
    bool moved = false;
    {
      std::unique_lock guard(mutex_, std::try_to_lock);
      if (guard.owns_lock()) {
        moved = progress_locked();
        if (!moved && idle >= spins_ && idle % 16 == 0) check_stalls(now_ns());
        tell_failures(guard);
      }
    }
    if ((completed = done())) break;
    if (timeout_ns >= 0 && now_ns() - begin > static_cast<uint64_t>(timeout_ns)) break;
    if (moved) {
      idle = 0;
      continue;
    }
    idle++;
    if (idle < spins_)
      cpu_relax();
    else if (idle < spins_ + yields_)
      sched_yield();
    else
      sleep(idle - spins_ - yields_);
  }
  if (--waiters_ == 0 && nonblocking_ > 0) helper_wake_.notify_one();
  return completed;
}

// Sleeps until a transport has something, or for a while that grows where one cannot say so.
// `tending`: only those count that their peers need driven.
void Engine::sleep(uint32_t naps, bool tending) {
  pollfd fds[16];
  nfds_t count = 0;
  bool all_have_descriptors = true;
  {
    const auto guard = lock();
    fds[count++] = {wake_fd_, POLLIN, 0};
    for (size_t i = 0; i < transports_.size() && count < std::size(fds); i++) {
      if (tending ? !tended_[i] : !used_[i]) continue;
      const int fd = transports_[i]->event_fd();
      if (fd < 0)
        all_have_descriptors = false;
      else if (!transports_[i]->prepare_wait())
        return;
      else
        fds[count++] = {fd, POLLIN, 0};
    }
    check_stalls(now_ns());
  }
  const int64_t nap_ns =
      all_have_descriptors ? 50'000'000 : std::min<int64_t>(20'000 * (1 + naps / 4), 1'000'000);
  const timespec limit{0, nap_ns};
  if (ppoll(fds, count, &limit, nullptr) > 0 && (fds[0].revents & POLLIN)) {
    uint64_t value;
    [[maybe_unused]] const ssize_t n = read(wake_fd_, &value, sizeof value);
  }
}

void Engine::start_helper() {
  if (!helper_.joinable()) helper_ = std::thread([this] { helper(); });
}

void Engine::answer_while_idle() {
  const auto guard = lock();
  answers_while_idle_ = true;
  start_helper();
}

// Drives what nobody waits for. Where there are transports to tend it looks every 5 ms whether a
// caller still drives them: to be told by each call would cost the call more.
void Engine::helper() {
  prctl(PR_SET_NAME, "sennit-helper");
  std::unique_lock guard(mutex_);
  while (!stopping_) {
    if ((nonblocking_ == 0 && !tends_) || waiters_ > 0) {
      const int idle_ms = answers_while_idle_ ? 200 : 1000;
      helper_wake_.wait_for(guard,
                            std::chrono::milliseconds(nonblocking_ > 0 || tends_ ? 5 : idle_ms));
      if (answers_while_idle_ && running_.empty()) progress_locked();
      continue;
    }
    uint32_t idle = 0;
    while (!stopping_ && (nonblocking_ > 0 || tends_) && waiters_ == 0) {
      const bool moved = progress_locked(true), tending = nonblocking_ == 0;
      tell_failures(guard);
      if (guard.owns_lock()) guard.unlock();
      if (moved)
        idle = 0;
      else if (++idle < yields_ && !tending)
        sched_yield();
      else
        sleep(idle > yields_ ? idle - yields_ : 0, tending);
      guard.lock();
    }
  }
}

void Engine::fail_communicator(uint32_t comm, const Status& status) {
  {
    const auto guard = lock();
    for (const auto& transport : transports_) transport->cancel(comm, status);
    const auto hand_back = [&](auto& waiting, auto& completed) {
      std::erase_if(waiting, [&](auto* request) {
        if (request->key.comm != comm) return false;
        request->status = status;
        completed.push_back(request);
        return true;
      });
    };
    hand_back(unreachable_sends_, completions_.sends);
    hand_back(unreachable_receives_, completions_.receives);
    for (Execution* execution : std::vector<Execution*>(running_))
      if (execution->comm() == comm) execution->fail(status);
    collect_done();
  }
  wake();
}

void Engine::forget(const std::function<bool(uint32_t comm)>& over) {
  const auto guard = lock();
  for (const auto& transport : transports_) transport->forget(over);
}

void Engine::fail_peer(int peer, const Status& status) {
  {
    const auto guard = lock();
    // Also one that nothing was sent to yet: a transport that knows it removes what it has left on
    // this host.
    if (static_cast<size_t>(peer) < routes_.size())
      if (Transport* const transport = route(peer)) transport->fail_peer(peer, status);
  }
  wake();
}

void Engine::wake() {
  // each takes one; what is left over wakes in vain
  const uint64_t sleepers = static_cast<uint64_t>(waiters_) + 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_, &sleepers, sizeof sleepers);
}

std::string Engine::statistics() {
  const auto guard = lock();
  std::string text;
  for (const auto& transport : transports_)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", transport->name(),
                        transport->statistics());
  return text;
}

}  // namespace sennit
