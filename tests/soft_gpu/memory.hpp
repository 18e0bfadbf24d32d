// memory.hpp: the memory that devices reach: their own, which the processor cannot touch, and
// ranges of the host's.
//
// All of the devices' memory is one file in memory that is mapped twice: programs get addresses of
// a view without any right, kernels and copies use the other. An address comes again only when the
// whole view, 64 GiB, was given out. Memory of another process is a part of its file, mapped into
// both.
#pragma once

#include <cstddef>
#include <cstdint>

namespace soft_gpu {

enum class RangeKind : uint8_t { unknown, device, managed, pinned, registered };

// Memory that was allocated or registered as one, of a device's context.
struct Range {
  RangeKind kind = RangeKind::unknown;
  int device = -2;
  uintptr_t first = 0;
  size_t bytes = 0;
};

// Each returns a number of CUresult. The device's memory is filled with what nobody wants.
// `shareable`: by other processes.
int allocate_device(size_t bytes, int device, bool shareable, uintptr_t* memory);
int allocate_host(RangeKind kind, size_t bytes, int device, uintptr_t* memory);
int register_host(uintptr_t memory, size_t bytes, int device);
// Where device memory lies that another process may map.
struct Shared {
  int process;
  int file;        // a descriptor of that process's
  uint64_t inode;  // of the file
  uint64_t offset, bytes;
  bool operator==(const Shared&) const = default;
};
// Of the allocation that this is in, which is shareable.
int share(uintptr_t memory, Shared* shared);
// Maps another process's as memory of the device, or counts once more where it is mapped already.
int map_shared(const Shared& shared, int device, uintptr_t* memory);
int unmap_shared(uintptr_t memory);
// The range at exactly this address is unknown from now on; host memory of ours is given back.
void forget(const Range& range);

// What is at this address.
Range range_at(uintptr_t address);
// Where a kernel finds these bytes, or null where the device does not reach all of them.
std::byte* reach(uintptr_t address, size_t bytes);
// The same for a copy, which may also be from or to any memory of the host's.
std::byte* reach_for_copy(uintptr_t address, size_t bytes);

}  // namespace soft_gpu
