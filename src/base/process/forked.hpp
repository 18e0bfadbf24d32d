// forked.hpp: what fork() makes of this library. The child gets copies of all objects, but none of
// their threads, and may get them in the middle of a change, with locks that nobody will ever
// release. So it leaves alone what its parent made: calls are refused before they take a lock, and
// handles that are given back are not followed by what is behind them. What the child makes by
// itself is its own.
//
// Only fork() counts: the children of vfork() and posix_spawn() have their parent's memory until
// they exec.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.hpp"

namespace sennit {

// How many fork()s lie between the first process that had this library and this one.
extern std::atomic<uint32_t> g_forks;

// Part of an object: tells which process made it. Costs a load.
class Origin {
 public:
  bool forked() const { return forks_ != g_forks.load(std::memory_order_relaxed); }

 private:
  uint32_t forks_ = g_forks.load(std::memory_order_relaxed);
};

// Never destroyed, though no leak: for what a forked child has of its parent.
void leave_to_parent(std::shared_ptr<const void> object);

// What open() returns: a descriptor, which is closed in forked children, who would else keep a
// connection or a port open when their parent is gone; or what is none, and errno. No fork happens
// in between, so open() must not take long. To be closed by close_guarded().
int open_guarded(const std::function<int()>& open);
int open_guarded_stream(int family);  // a socket that does not block
void close_guarded(int fd);

// A lock of the whole process, never destroyed: free in a forked child, and what it guards is whole
// there. No other of these, and no function above, may be called under it.
void hold_across_fork(Mutex& mutex);

// While one lives, a fork by another thread waits: for short calls into libraries with locks of
// their own, which in the child nobody would release.
class ForeignCall {
 public:
  ForeignCall();
  ~ForeignCall();
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
};

// For what may take minutes, one at a time in this process; no fork waits for it. A forked child
// has one of its own, and finds what it guards in the middle of any change.
Mutex& start_mutex();

}  // namespace sennit
