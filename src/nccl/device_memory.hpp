// device_memory.hpp: whether memory is a GPU's, and allocating some.
#pragma once

#include "nccl/device.hpp"

namespace sennit::nccl {

// Whose memory `count` pointers are: the first of these that one of them is. Pinned memory is the
// host's, and a GPU reaches it.
enum class Owner { device, pinned, host };
Owner owner_of(const void* const* pointers, int count);
// Whether the host reads a device's memory all the same, since it is managed.
bool is_managed(const void* memory);

// Memory of the device that is current in the calling thread, or else of the first, for
// ncclMemAlloc; null where the program uses no CUDA, and the host's memory serves.
Outcome allocate_on_device(size_t bytes, void** memory);
// Gives it back. False: it is none of a device's.
bool free_on_device(void* memory);

}  // namespace sennit::nccl
