// device_memory.hpp: whether memory is a GPU's, and waiting for a stream. CUDA's driver is asked
// only where the program has loaded it; nothing is loaded or started here.
#pragma once

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// An error that names the memory where one of `count` pointers is a device's. Null pointers are
// nobody's.
Outcome refuse_device_memory(const void* const* pointers, int count);

// Waits until the stream has come to this point, so that a call on host memory that begins now has
// the stream's order, and is over when it returns. Called behind refuse_device_memory, which looks
// whether there is a driver.
Outcome await_stream(cudaStream_t stream);

}  // namespace sennit::nccl
