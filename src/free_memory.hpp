// free_memory.hpp: how much memory there is to take, asked before much of it is taken: the kernel promises
// more than it has, and ends the process, or another, when the promise is called in.
#pragma once

#include <cstdint>

namespace sennit {

// What is free: the machine's, or less by this process's control group. 0: the system does not say.
uint64_t memory_of_this_host();

// What this process may take of it, which so many like it share; less where its address space has a limit. At
// least 1 where the system says, else 0.
uint64_t free_memory(uint64_t sharers = 1);

}  // namespace sennit
