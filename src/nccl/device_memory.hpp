// device_memory.hpp: whether memory is a GPU's, and waiting for a stream. CUDA's driver is asked
// only where the program has loaded it; nothing is loaded or started here.
#pragma once

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// Whose memory `count` pointers are: the first of these that one of them is. Pinned memory is the
// host's, and a GPU reaches it.
enum class Owner { device, pinned, host };
Owner owner_of(const void* const* pointers, int count);

// Memory of the device that is current in the calling thread, for ncclMemAlloc; null where none is
// current, and the host's memory serves.
Outcome allocate_on_device(size_t bytes, void** memory);
// Gives it back. False: it is none of the device's.
bool free_on_device(void* memory);

// Whether what is put into the stream becomes part of a graph. Called behind owner_of.
bool is_captured(cudaStream_t stream);

// Waits until the stream has come to this point, so that a call on host memory that begins now has
// the stream's order, and is over when it returns. Called behind owner_of, which looks
// whether there is a driver.
Outcome await_stream(cudaStream_t stream);

}  // namespace sennit::nccl
