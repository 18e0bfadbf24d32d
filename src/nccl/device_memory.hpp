// device_memory.hpp: whether memory is a GPU's, and waiting for a stream. CUDA's driver is asked
// only where the program has loaded it; nothing is loaded or started here.
#pragma once

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// An error that names the memory where one of `count` pointers is a device's. Null pointers are
// nobody's.
Outcome refuse_device_memory(const void* const* pointers, int count);

// Whether one of `count` pointers is memory that a GPU reaches, so that the call belongs into its
// stream.
bool reached_by_device(const void* const* pointers, int count);

// Memory of the device that is current in the calling thread, for ncclMemAlloc; null where there is
// none, and the host's memory serves.
void* allocate_on_device(size_t bytes);
// Gives it back. False: it is none of the device's.
bool free_on_device(void* memory);

// Waits until the stream has come to this point, so that a call on host memory that begins now has
// the stream's order, and is over when it returns. Called behind reached_by_device, which looks
// whether there is a driver.
Outcome await_stream(cudaStream_t stream);

}  // namespace sennit::nccl
