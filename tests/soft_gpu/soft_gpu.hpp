// soft_gpu.hpp: what a test asks of the software GPU beyond what CUDA's driver offers. None of it
// counts as a call of the driver, and none of it waits for a stream.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

// How many calls of the driver this process, and this thread, has made so far.
uint64_t soft_gpu_calls();
uint64_t soft_gpu_calls_of_thread();
// How often this thread has taken memory, or registered some.
uint64_t soft_gpu_allocations_of_thread();
// What all delays and choices come from: SOFT_GPU_SEED, or a random number. Print it.
uint64_t soft_gpu_seed();
// Between memory of the host's and a device's, past all streams; aborts where there is none.
void soft_gpu_read(void* host, const void* device, size_t bytes);
void soft_gpu_write(void* device, const void* host, size_t bytes);
// A CUstream starts nothing more, until it is released.
void soft_gpu_hold(void* stream);
void soft_gpu_release(void* stream);
// As an illegal address of some kernel does: no kernel goes on, and every call fails from now on.
void soft_gpu_break();
// After that: calls succeed again. What was in the streams meanwhile is lost.
void soft_gpu_mend();

}  // extern "C"
#pragma GCC visibility pop
