// forked.cpp: see base/process/forked.hpp.
#include "base/process/forked.hpp"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <vector>

#include "base/mutex.hpp"
#include "base/process/descriptors.hpp"

namespace sennit {

constinit std::atomic<uint32_t> g_forks{0};

namespace {

// The mutexes are held by the thread that forks until fork() is over, on either side.
struct State {
  Mutex entrance;  // to foreign calls
  std::atomic<int> inside{0};
  Mutex mutex;
  std::vector<int> guarded SENNIT_GUARDED_BY(mutex);
  std::vector<Mutex*> held SENNIT_GUARDED_BY(mutex);
  std::map<uint32_t, Mutex> starts SENNIT_GUARDED_BY(mutex);  // by g_forks
};

thread_local int t_inside = 0;  // of `inside`: a library may fork, too

State& state();

// The analysis knows no locks that are taken in one function and released in another one, nor those
// of a list.
void before_fork() SENNIT_NO_THREAD_SAFETY_ANALYSIS {
  State& s = state();
  s.entrance.lock();
  for (int inside; (inside = s.inside.load()) > t_inside;) s.inside.wait(inside);
  s.mutex.lock();
  for (Mutex* mutex : s.held) mutex->lock();
}

void after_fork() SENNIT_NO_THREAD_SAFETY_ANALYSIS {
  for (Mutex* mutex : state().held) mutex->unlock();
  state().mutex.unlock();
  state().entrance.unlock();
}

void after_fork_in_child() SENNIT_NO_THREAD_SAFETY_ANALYSIS {
  g_forks.fetch_add(1, std::memory_order_relaxed);
  for (const int fd : state().guarded) ::close(fd);
  state().guarded.clear();
  after_fork();
}

State& state() {
  static State* const instance = new State;  // outlives all that may fork or close
  return *instance;
}

[[maybe_unused]] const int kRegistered =
    pthread_atfork(before_fork, after_fork, after_fork_in_child);

}  // namespace

void leave_to_parent(std::shared_ptr<const void> object) {
  static auto* const left = new std::vector<std::shared_ptr<const void>>;
  const MutexLock lock(state().mutex);
  left->push_back(std::move(object));
}

int open_guarded(const std::function<int()>& open) {
  State& s = state();
  const MutexLock lock(s.mutex);
  const int fd = off_standard_streams(open());
  const int error = errno;
  if (fd >= 0) s.guarded.push_back(fd);
  errno = error;
  return fd;
}

int open_guarded_stream(int family) {
  return open_guarded(
      [=] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

// What is not in the list was closed when this process was forked; the number may be somebody
// else's by now.
void close_guarded(int fd) {
  State& s = state();
  const MutexLock lock(s.mutex);
  if (std::erase(s.guarded, fd) > 0) ::close(fd);
}

void hold_across_fork(Mutex& mutex) {
  State& s = state();
  const MutexLock lock(s.mutex);
  s.held.push_back(&mutex);
}

// A thread that is inside already goes on though somebody waits to fork, who waits for it.
ForeignCall::ForeignCall() {
  State& s = state();
  if (t_inside > 0) {
    s.inside.fetch_add(1);
  } else {
    const MutexLock lock(s.entrance);
    s.inside.fetch_add(1);
  }
  t_inside++;
}

ForeignCall::~ForeignCall() {
  t_inside--;
  state().inside.fetch_sub(1);
  state().inside.notify_all();
}

Mutex& start_mutex() {
  State& s = state();
  const MutexLock lock(s.mutex);
  return s.starts[g_forks.load(std::memory_order_relaxed)];
}

}  // namespace sennit
