#include "forked.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace sennit {

constinit std::atomic<uint32_t> g_forks{0};

namespace {

// Both are held by the thread that forks until fork() is over, on either side.
struct State {
  std::mutex mutex;
  std::vector<int> guarded;
  std::vector<std::mutex*> held;
};

State& state();

void before_fork() {
  state().mutex.lock();
  for (std::mutex* mutex : state().held) mutex->lock();
}

void after_fork() {
  for (std::mutex* mutex : state().held) mutex->unlock();
  state().mutex.unlock();
}

void after_fork_in_child() {
  g_forks.fetch_add(1, std::memory_order_relaxed);
  for (const int fd : state().guarded) ::close(fd);
  state().guarded.clear();
  after_fork();
}

State& state() {
  static State* const instance = new State;  // outlives all that may fork or close
  return *instance;
}

[[maybe_unused]] const int kRegistered = pthread_atfork(before_fork, after_fork, after_fork_in_child);

}  // namespace

void leave_to_parent(std::shared_ptr<const void> object) {
  static auto* const left = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(state().mutex);
  left->push_back(std::move(object));
}

void fork_guard(int fd) {
  if (fd < 0) return;
  const std::lock_guard lock(state().mutex);
  state().guarded.push_back(fd);
}

// What is not in the list was closed when this process was forked; the number may be somebody else's by now.
void close_guarded(int fd) {
  const std::lock_guard lock(state().mutex);
  if (std::erase(state().guarded, fd) > 0) ::close(fd);
}

void hold_across_fork(std::mutex& mutex) {
  const std::lock_guard lock(state().mutex);
  state().held.push_back(&mutex);
}

}  // namespace sennit
