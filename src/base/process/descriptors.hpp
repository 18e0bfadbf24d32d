// descriptors.hpp: how many files this process may still open, and what to do about it when they
// are too few.
//
// The soft limit is raised only where it is too low, only as far as needed, and never beyond the
// hard limit; that is said (info). Cost: one pass over /proc/self/fd. Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace sennit {

inline constexpr const char* kDescriptorRemedy = "raise the limit with 'ulimit -n', or close files";

// How many more descriptors this process may open; 0 also where not even that can be found out.
size_t descriptors_left();
// Raises the soft limit where fewer than `wanted` are left. Returns how many are left then.
size_t reserve_descriptors(size_t wanted);
// "no file descriptors left (WHAT needs N, M are left of 256); raise the limit ..."
std::string descriptors_lacking(const std::string& what, size_t needed, size_t left);

// For what stays open, straight after it was opened: the same file, but not under the number of a
// standard stream. A program may have closed those and write to them all the same, and so do we:
// into a socket, which ends the process with SIGPIPE, or over what lies in shared memory. -1 stays
// -1, and errno as it is.
int off_standard_streams(int fd);

}  // namespace sennit
