// memory_left.hpp: how much memory this process may still take, and taking it within that. The
// kernel hands out more than there is, and ends a process, or its neighbour, when the pages are
// touched; so who takes much looks first: at the machine (MemAvailable) and at the limits of all
// cgroups that this process is in, versions 1 and 2, where file cache that can be given back counts
// as left. Cost: some 0.1 ms a look; small amounts go without one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.hpp"

namespace sennit {

// How much may still be taken, at the moment of the look.
struct MemoryLeft {
  uint64_t bytes = UINT64_MAX;  // the default: nothing is known to limit it
  std::string limit;            // what limits it: "this machine", "the limit of cgroup /jobs/7"
};

// `root`: where /proc and the mounts are found, for tests.
MemoryLeft memory_left(const std::string& root = "");

// What this process may take of that, which it shares with so many like it; less where RLIMIT_AS or
// RLIMIT_DATA says so.
MemoryLeft memory_left_to_process(uint64_t sharers = 1);

// Calls take(offset, bytes) piece after piece, and looks before each: ranks of one host may ask at
// the same time. The error says what was asked for, what is left and what limits it; what was taken
// until then is the caller's to give back. take() returns false where the kernel refuses. Less than
// 64 KiB is taken without.
Status take_memory(size_t bytes, const std::function<bool(size_t offset, size_t bytes)>& take,
                   const std::string& root = "");

// The kernel has refused `bytes` by itself: why, as far as it is known; RLIMIT_AS and RLIMIT_DATA
// among that.
Status no_memory(size_t bytes);

}  // namespace sennit
