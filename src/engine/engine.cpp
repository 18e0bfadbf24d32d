// engine.cpp: see engine/engine.hpp.
#include "engine/engine.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/process/signals_blocked.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sennit {
namespace {

// How often a waiter looks in vain before it yields, and yields before it sleeps. Spinning is
// polite only where every rank of this machine has a core to itself.
constexpr uint32_t kSpinsWithOwnCore = 2000;
constexpr uint32_t kSpinsOnSharedCore = 1;
constexpr uint32_t kYields = 200;
// Where the kernel wakes the waiter, looking in vain costs a system call and the cores of other
// processes.
constexpr uint32_t kSpinsWhereWoken = 1;
constexpr uint32_t kYieldsWhereWoken = 10;
// Where ranks share cores besides, what one does in vain is taken from those it waits for. Not
// where a transport wakes nobody: there the other ranks of this host answer while this one yields.
constexpr uint32_t kYieldsWhereWokenOnSharedCore = 1;
// On the short way; there the first looks come back to back.
constexpr uint32_t kSmallSpinsWithOwnCore = 1000;
constexpr uint32_t kSpinsBackToBack = 64;
// Every so many small calls transports do what they do from time to time.
constexpr uint32_t kSmallCallsBetweenProgress = 64;

constexpr uint32_t kLooksBetweenStallChecks = 16;

// How soon the helper looks again by itself: while there may be something to drive, while it
// answers peers, else.
constexpr std::chrono::milliseconds kHelperLooks{1};
constexpr std::chrono::milliseconds kHelperAnswers{200};
constexpr std::chrono::milliseconds kHelperIdles{1000};
// To wake the helper costs its caller, and the core it takes, more than a small call does. So it is
// woken for long calls alone, which somebody else can drive from the beginning; others are mostly
// waited for before it looks by itself, as it does until no call has come for so many looks.
constexpr uint64_t kLongCallNs = 1'000'000;
constexpr int kLooksInVain = 50;

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Engine::Engine(bool core_each, size_t in_flight_bytes, uint64_t stall_ns, Callbacks callbacks,
               std::unique_ptr<Recording> recording)
    : callbacks_(std::move(callbacks)),
      in_flight_bytes_(in_flight_bytes),
      spins_(core_each ? kSpinsWithOwnCore : kSpinsOnSharedCore),
      yields_(kYields),
      yields_where_all_wake_(core_each ? kYieldsWhereWoken : kYieldsWhereWokenOnSharedCore),
      small_spins_(core_each ? kSmallSpinsWithOwnCore : 0),
      memory_(routes_),
      trace_(std::move(recording)),
      stall_watch_(stall_ns) {}

// The driver is asked without the lock, as ever.
Engine::~Engine() {
  stop_helper();
  Accelerator* importer = nullptr;
  std::vector<std::byte*> imports;
  {
    const MutexLock lock(mutex_);
    memory_.free_scratch();
    importer = importer_;
    imports.swap(imports_);
  }
  for (std::byte* const memory : imports) importer->end_import(memory);
}

void Engine::set_transports(std::vector<std::unique_ptr<Transport>> transports,
                            std::string missing) {
  const MutexLock lock(mutex_);
  routes_.set_transports(std::move(transports), std::move(missing));
  if (routes_.tends()) start_helper();
}

void Engine::set_addresses(std::vector<std::vector<std::vector<std::byte>>> addresses) {
  const MutexLock lock(mutex_);
  routes_.set_addresses(std::move(addresses));
}

// ---- requests of executions ----

Transport* Engine::route(int peer) {
  Transport* const transport = routes_.to(peer);
  if (routes_.wakes_waiters()) {
    const uint32_t yields = routes_.all_wake() ? yields_where_all_wake_ : kYieldsWhereWoken;
    if (yields_ != yields) {
      spins_ = kSpinsWhereWoken;
      yields_ = yields;
    }
  }
  return transport;
}

void Engine::send(SendRequest& request) {
  if (Transport* transport = route(request.peer)) {
    transport->send(request);
    return;
  }
  unreachable_sends_.push_back(&request);
  callbacks_.suspect(request.peer, routes_.unreachable(request.peer));
}

void Engine::recv(RecvRequest& request) {
  if (Transport* transport = route(request.peer)) {
    transport->recv(request);
    return;
  }
  unreachable_receives_.push_back(&request);
  callbacks_.suspect(request.peer, routes_.unreachable(request.peer));
}

void Engine::release(RecvRequest& request) { route(request.peer)->release(request); }

bool Engine::has_come(int peer, const Key& key) {
  Transport* const transport = route(peer);
  return transport != nullptr && transport->has_come(peer, key);
}

// ---- driving ----

void Engine::start(Execution& execution, uint32_t seq, bool nonblocking) {
  Failures failures;
  {
    const MutexLock lock(mutex_);
    takes_up(execution, nonblocking);
    execution.start(seq);
    failures = started(execution, nonblocking);
  }
  tell(failures);
}

void Engine::start_send(Execution& execution, Mailbox& mailbox, int peer, uint32_t tag,
                        bool nonblocking) {
  Failures failures;
  {
    const MutexLock lock(mutex_);
    takes_up(execution, nonblocking);
    mailbox.send(execution, peer, tag);
    failures = started(execution, nonblocking);
  }
  tell(failures);
}

void Engine::start_receive(Execution& execution, Mailbox& mailbox, int peer, uint32_t tag,
                           bool nonblocking) {
  Failures failures;
  {
    const MutexLock lock(mutex_);
    takes_up(execution, nonblocking);
    const bool waited = mailbox.waits();
    mailbox.receive(execution, peer, tag);
    if (!waited && mailbox.waits()) mailboxes_.push_back(&mailbox);
    failures = started(execution, nonblocking);
  }
  tell(failures);
}

// It may have failed in that. Peers must hear of it now: the caller need not wait for it, or drive
// anything, until they give up.
Engine::Failures Engine::started(const Execution& execution, bool nonblocking) {
  collect_done();
  if (nonblocking) tell_helper(execution);
  return take_failures();
}

void Engine::takes_up(Execution& execution, bool nonblocking) {
  execution.last_progress_ns = now_ns();
  execution.last_report_ns = 0;
  execution.awaited = !nonblocking;
  running_.push_back(&execution);
  if (nonblocking) {
    nonblocking_running_.push_back(&execution);
    nonblocking_++;
    start_helper();
  }
}

// That there is something to drive, which was just started.
void Engine::tell_helper(const Execution& execution) {
  if (execution.done()) return;
  const bool is_long = execution.prepared().plan.predicted_ns >= kLongCallNs;
  if (is_long || helper_looks_ == 0) helper_wake_.notify_one();
  helper_looks_ = kLooksInVain;
}

// Whether a receive that waited for its source has one now.
bool Engine::look_into_mailboxes() {
  bool started = false;
  for (Mailbox* mailbox : mailboxes_) started |= mailbox->look();
  if (!started) return false;
  std::erase_if(mailboxes_, [](const Mailbox* mailbox) { return !mailbox->waits(); });
  collect_done();  // what was started may be done
  return true;
}

// ---- device memory ----

bool Engine::watch(std::shared_ptr<StreamPlace> place) {
  const MutexLock lock(mutex_);
  if (!place->close()) return false;
  if (place->in_graph()) {
    graphs_++;
    start_helper();
  }
  places_.push_back(std::move(place));
  helper_wake_.notify_one();
  wake();  // who sleeps now does not look at it
  return true;
}

void Engine::fail_place(StreamPlace& place, const Status& why) {
  Failures failures;
  {
    const MutexLock lock(mutex_);
    place.fail(why);
    collect_done();
    failures = take_failures();
  }
  tell(failures);
}

bool Engine::look_at_places() {
  bool moved = false;
  for (size_t i = 0; i < places_.size(); i++) moved |= places_[i]->poll();
  if (forget_places() || moved) collect_done();
  return moved;
}

// At which nothing will be done any more. Whether there were some.
bool Engine::forget_places() {
  const bool some = std::erase_if(places_, [](const auto& place) { return place->left(); }) > 0;
  if (some)
    graphs_ = static_cast<size_t>(std::count_if(
        places_.begin(), places_.end(), [](const auto& place) { return place->in_graph(); }));
  return some;
}

void Engine::drop(Execution& execution) {
  {
    const MutexLock lock(mutex_);
    for (const auto& place : places_) place->drop(execution);
    forget_places();
    execution.awaited = true;
  }
  wait([&] { return execution.done(); }, -1);
}

// ---- the short way ----

bool Engine::run_small(Execution& execution, uint32_t seq, const std::atomic<bool>& failed) {
  Failures failures;
  bool done = false;
  {
    MutexLock lock(mutex_);
    if (!running_.empty()) {  // those need the transports' progress() too
      lock.unlock();
      start(execution, seq, false);
      return false;
    }
    execution.awaited = true;
    running_.push_back(&execution);
    execution.start_small(seq);
    done = poll_small(execution, failed);
    if (!done) {
      execution.last_progress_ns = now_ns();
      execution.last_report_ns = 0;
      execution.leave_small();
      done = execution.done();
    }
    // The lock was free now and then: others may have collected this one, and started theirs.
    if (done && running_.size() == 1 && running_.front() == &execution)
      running_.clear();
    else
      collect_done();
    if (++small_calls_ % kSmallCallsBetweenProgress == 0 && progress_locked()) wake_waiters();
    failures = take_failures();
  }
  tell(failures);
  return done;
}

// As long as its messages come soon; without the lock now and then. Whether the execution is done.
bool Engine::poll_small(Execution& execution, const std::atomic<bool>& failed) {
  for (uint32_t idle = 0; !execution.done() && execution.poll_small(); idle++) {
    if (execution.done() || failed.load(std::memory_order_relaxed) ||
        idle >= small_spins_ + yields_)
      break;
    if (idle < small_spins_) {
      if (idle >= kSpinsBackToBack) cpu_relax();
      continue;
    }
    // others see it now, and look for stalls
    if (idle == small_spins_) execution.last_progress_ns = now_ns();
    mutex_.unlock();
    sched_yield();
    mutex_.lock();
  }
  return execution.done();
}

bool Engine::progress_locked(Routes::Driven which) {
  bool moved = routes_.progress(which, completions_);
  if (!mailboxes_.empty()) [[unlikely]]
    moved |= look_into_mailboxes();
  if (!places_.empty()) [[unlikely]]
    moved |= look_at_places();
  const auto none = [](const Completions& c) {
    return c.sends.empty() && c.receives.empty() && c.events.empty();
  };
  if (none(completions_)) return moved;
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
  if (none(completions_)) std::swap(completions, completions_);  // keep the capacity
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

void Engine::tell(const Failures& failures) {
  for (const auto& [comm, status] : failures) callbacks_.failed_here(comm, status);
}

bool Engine::progress() {
  if (!mutex_.try_lock()) return false;
  bool moved = false;
  Failures failures;
  {
    const MutexLock lock(mutex_, std::adopt_lock);
    moved = progress_locked();
    failures = take_failures();
  }
  if (moved) wake_waiters();  // it took what would have woken them
  tell(failures);
  return moved;
}

void Engine::check_stalls(uint64_t now) {
  // Whose stream has not come to it may take as long as it likes.
  if (!places_.empty()) {
    for (Execution* const execution : running_)
      if (execution->armed()) execution->last_progress_ns = now;
    bool lost = false;
    for (size_t i = 0; i < places_.size(); i++) lost |= places_[i]->end_if_lost();
    if (lost) collect_done();
  }
  const auto tell = [this, now](Execution& execution) {
    execution.record_stall(now);
    callbacks_.stalled(execution);
  };
  if (stall_watch_.look(running_, now, tell)) routes_.stalled();
}

// ---- waiting ----

bool Engine::wait(const std::function<bool()>& done, int64_t timeout_ns) {
  if (done()) return true;
  const uint64_t begin = timeout_ns >= 0 ? now_ns() : 0;
  waiters_++;
  bool completed = false;
  bool took = false;  // it moved something, and has not looked on until nothing moves
  for (uint32_t idle = 0;;) {
    const uint64_t wakes = sleeper_.wakes();
    bool moved = false;
    if (mutex_.try_lock()) {
      Failures failures;
      {
        const MutexLock lock(mutex_, std::adopt_lock);
        moved = progress_locked();
        if (!moved && idle >= spins_ && idle % kLooksBetweenStallChecks == 0)
          check_stalls(now_ns());
        failures = take_failures();
      }
      took |= moved;
      tell(failures);
    }
    if ((completed = done())) break;
    const int64_t left_ns =
        timeout_ns < 0 ? INT64_MAX : timeout_ns - static_cast<int64_t>(now_ns() - begin);
    if (left_ns < 0) break;
    if (moved) {
      idle = 0;
      continue;
    }
    idle++;
    if (idle < spins_)
      cpu_relax();
    else if (idle < spins_ + yields_)
      sched_yield();
    else if (sleep(idle - spins_ - yields_, Routes::Awaited::used, wakes, left_ns))
      took = false;
  }
  if (--waiters_ > 0 && took) wake();  // what it took would have woken another one
  return completed;
}

// `wakes`: how many there were before the caller looked for something to do. False: something moves
// already.
bool Engine::sleep(uint32_t naps, Routes::Awaited awaited, uint64_t wakes, int64_t most_ns) {
  Routes::Descriptors found;
  {
    const MutexLock lock(mutex_);
    found = routes_.prepare_wait(awaited);
    if (found.some_moves) return false;
    check_stalls(now_ns());
    if (!places_.empty()) {  // a device wakes nobody
      found.all = false;
      const bool works = std::any_of(places_.begin(), places_.end(), [](const auto& place) {
        return !place->in_graph() || !place->waits();
      });
      if (works) naps = 0;
    }
  }
  sleeper_.sleep(found, naps, wakes, most_ns);
  return true;
}

// ---- the helper ----

// Where the system has no thread left, whoever waits still drives, and the next call tries again.
void Engine::start_helper() {
  if (helper_.joinable()) return;
  try {
    const SignalsBlocked blocked;
    helper_ = std::thread([this] { helper(); });
  } catch (const std::exception& error) {
    if (std::exchange(said_helpless_, true)) return;
    log(LogLevel::warn,
        "the system has no thread left for driving nonblocking calls ({}): they, and what peers "
        "ask of this rank, get on only while it waits for a call or tests one; raise the limit of "
        "threads (ulimit -u, pids.max)",
        error.what());
  }
}

void Engine::answer_while_idle() {
  const MutexLock lock(mutex_);
  answers_while_idle_ = true;
  start_helper();
}

void Engine::stop_helper() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  helper_wake_.notify_all();
  wake();
  if (helper_.joinable()) helper_.join();
}

bool Engine::has_to_drive() const {
  return (nonblocking_ > 0 || graphs_ > 0 || routes_.tends()) && waiters_ == 0;
}

// Drives what nobody waits for. Where there are transports to tend it looks again and again whether
// a caller still drives them: to be told by each call would cost the call more.
void Engine::helper() {
  prctl(PR_SET_NAME, "sennit-helper");
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (!has_to_drive()) {
      if (nonblocking_ > 0) helper_looks_ = kLooksInVain;
      const bool looks = helper_looks_ > 0 || graphs_ > 0 || routes_.tends();
      const auto idles = answers_while_idle_ ? kHelperAnswers : kHelperIdles;
      helper_wake_.wait_for(lock, looks ? kHelperLooks : idles);
      if (helper_looks_ > 0) helper_looks_--;
      if (answers_while_idle_ && running_.empty()) {
        const bool moved = progress_locked();
        const Failures failures = take_failures();
        lock.unlock();
        if (moved) wake_waiters();
        tell(failures);
        lock.lock();
      }
      continue;
    }
    for (uint32_t idle = 0; !stopping_ && has_to_drive();) {
      const uint64_t wakes = sleeper_.wakes();
      const bool moved = progress_locked(Routes::Driven::used_or_tended);
      const bool tending = nonblocking_ == 0;
      const Failures failures = take_failures();
      lock.unlock();
      if (moved) wake_waiters();
      tell(failures);
      if (moved)
        idle = 0;
      else if (++idle < yields_ && !tending)
        sched_yield();
      else
        sleep(idle > yields_ ? idle - yields_ : 0,
              tending ? Routes::Awaited::tended : Routes::Awaited::used, wakes, INT64_MAX);
      lock.lock();
    }
  }
}

// ---- failures ----

void Engine::fail_communicator(uint32_t comm, const Status& status) {
  {
    const MutexLock lock(mutex_);
    for (const auto& transport : routes_.transports()) transport->cancel(comm, status);
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
    for (const auto& place : places_) place->drop(comm);
    forget_places();
    std::erase_if(mailboxes_, [comm](Mailbox* mailbox) {
      if (mailbox->comm() == comm) mailbox->drop();
      return mailbox->comm() == comm;
    });
    collect_done();
  }
  wake();
}

void Engine::fail_peer(int peer, const Status& status) {
  {
    const MutexLock lock(mutex_);
    // Also one that nothing was sent to yet: a transport that knows it removes what it has left on
    // this host.
    if (routes_.knows(peer))
      if (Transport* const transport = route(peer)) transport->fail_peer(peer, status);
  }
  wake();
}

void Engine::forget(const std::function<bool(uint32_t comm)>& over) {
  const MutexLock lock(mutex_);
  for (const auto& transport : routes_.transports()) transport->forget(over);
}

// ---- memory, statistics ----

Result<void*> Engine::allocate_user(size_t bytes) {
  const MutexLock lock(mutex_);
  return memory_.allocate(bytes);
}

bool Engine::free_user(void* memory) {
  const MutexLock lock(mutex_);
  return memory_.free(memory);
}

Status Engine::register_user(void* memory, size_t bytes) {
  const MutexLock lock(mutex_);
  return memory_.register_range(memory, bytes);
}

Status Engine::deregister_user(void* memory) {
  const MutexLock lock(mutex_);
  return memory_.deregister_range(memory);
}

// The driver is asked without the lock.
void Engine::map_peers_memory(Accelerator& accelerator) {
  std::vector<std::pair<Transport*, PeerMemory>> found;
  {
    const MutexLock lock(mutex_);
    forget_places();  // a worker is out until it is gone
    if (!importer_) importer_ = &accelerator;
    if (importer_ != &accelerator) return;
    for (const auto& transport : routes_.transports())
      for (const PeerMemory& memory : transport->unanswered())
        found.emplace_back(transport.get(), memory);
  }
  for (const auto& [transport, memory] : found) {
    const Result<std::byte*> here = accelerator.import_memory(memory.memory);
    if (here && !*here) return;
    if (!here)
      log(LogLevel::info, "device memory of rank {} goes through the host's: {}", memory.peer,
          here.status().text());
    bool counts = false;
    {
      const MutexLock lock(mutex_);
      counts = transport->answer(memory, here ? *here : nullptr);
      if (here && counts) imports_.push_back(*here);
    }
    if (here && !counts) accelerator.end_import(*here);
  }
}

std::string Engine::statistics() {
  const MutexLock lock(mutex_);
  std::string text;
  for (const auto& transport : routes_.transports())
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", transport->name(),
                        transport->statistics());
  return text;
}

}  // namespace sennit
