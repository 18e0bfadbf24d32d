// device_memory.cpp: see nccl/device_memory.hpp.
#include "nccl/device_memory.hpp"

#include <cstdint>
#include <string>

namespace sennit::nccl {
namespace {

constexpr int kAttributeMemoryType = 2, kAttributeIsManaged = 8;
constexpr unsigned kMemoryTypeHost = 1;

}  // namespace

Owner owner_of(const void* const* pointers, int count) {
  const LoadedDriver* const driver = loaded_driver();
  Owner owner = Owner::host;
  if (!driver || !driver->cuPointerGetAttribute) return owner;
  for (int i = 0; i < count; i++) {
    unsigned type = 0;
    const auto address = reinterpret_cast<uintptr_t>(pointers[i]);
    if (!pointers[i] ||
        driver->cuPointerGetAttribute(&type, kAttributeMemoryType, address) != kCudaSuccess)
      continue;
    if (type != 0 && type != kMemoryTypeHost) return Owner::device;
    if (type == kMemoryTypeHost) owner = Owner::pinned;
  }
  return owner;
}

bool is_managed(const void* memory) {
  const LoadedDriver* const driver = loaded_driver();
  unsigned managed = 0;
  return driver && driver->cuPointerGetAttribute &&
         driver->cuPointerGetAttribute(&managed, kAttributeIsManaged,
                                       reinterpret_cast<uintptr_t>(memory)) == kCudaSuccess &&
         managed != 0;
}

Outcome allocate_on_device(size_t bytes, void** memory) {
  *memory = nullptr;
  const LoadedDriver* const driver = loaded_driver();
  if (!driver || !driver->cuMemAlloc_v2) return {};
  DeviceContext device = current_device();
  if (!device.context && device.number >= 0) device = numbered_device(device.number);
  if (!device.context) return {};
  const OnDevice here(device);
  CudaAddress address = 0;
  if (const int error = driver->cuMemAlloc_v2(&address, bytes); error != kCudaSuccess)
    return {ncclUnhandledCudaError, "ncclMemAlloc: cuMemAlloc of " + std::to_string(bytes) +
                                        " bytes: CUDA error " + std::to_string(error)};
  *memory = reinterpret_cast<void*>(address);
  return {};
}

bool free_on_device(void* memory) {
  if (owner_of(&memory, 1) != Owner::device) return false;
  const LoadedDriver* const driver = loaded_driver();
  const OnDevice here(device_of(memory));
  return driver->cuMemFree_v2 &&
         driver->cuMemFree_v2(reinterpret_cast<uintptr_t>(memory)) == kCudaSuccess;
}

}  // namespace sennit::nccl
