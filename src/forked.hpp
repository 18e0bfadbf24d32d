// forked.hpp: what fork() makes of this library. The child gets copies of all objects, but none of their
// threads, and may get them in the middle of a change, with locks that nobody will ever release. So it leaves
// alone what its parent made: calls are refused before they take a lock, and handles that are given back are
// not followed by what is behind them. What the child makes by itself is its own.
//
// Only fork() counts: the children of vfork() and posix_spawn() have their parent's memory until they exec.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

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

// Has fd, if it is one, closed in forked children, which would else keep a connection or a port open when
// their parent is gone. To be closed by close_guarded().
void fork_guard(int fd);
void close_guarded(int fd);

// A lock of the whole process, never destroyed: free in a forked child, and what it guards is whole there.
// No other of these, and no function above, may be called under it.
void hold_across_fork(std::mutex& mutex);

}  // namespace sennit
