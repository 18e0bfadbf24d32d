// device_memory.cpp: see nccl/device_memory.hpp.
#include "nccl/device_memory.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdint>

namespace sennit::nccl {
namespace {

// Of CUDA's driver API, whose numbers never change.
constexpr int kCudaSuccess = 0;
constexpr int kCudaNotInitialized = 3;
constexpr int kCudaNoDevice = 100;
constexpr int kCudaInvalidContext = 201;
constexpr uintptr_t kPerThreadStream = 2;  // NULL and the legacy stream, 1, are below it
constexpr int kAttributeMemoryType = 2;
constexpr unsigned kMemoryTypeHost = 1;

using GetAttribute = int (*)(void* data, int attribute, unsigned long long pointer);
using Allocate = int (*)(unsigned long long* memory, size_t bytes);
using Free = int (*)(unsigned long long memory);
using StreamIsCapturing = int (*)(cudaStream_t stream, int* capturing);
using StreamSynchronize = int (*)(cudaStream_t stream);

struct Driver {
  std::atomic<GetAttribute> get_attribute{nullptr};
  std::atomic<StreamSynchronize> synchronize{nullptr};
  std::atomic<StreamIsCapturing> is_capturing{nullptr};
  std::atomic<Allocate> allocate{nullptr};
  std::atomic<Free> free{nullptr};
  std::atomic<unsigned long long> looked_at{0};  // how many libraries there were at the last look
};
Driver driver;

// How many libraries this process has loaded so far, and one.
unsigned long long libraries_loaded() {
  unsigned long long loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* argument) {
        *static_cast<unsigned long long*>(argument) = info->dlpi_adds + 1;
        return 1;
      },
      &loaded);
  return loaded;
}

void find_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return;
  driver.synchronize = reinterpret_cast<StreamSynchronize>(dlsym(library, "cuStreamSynchronize"));
  driver.is_capturing = reinterpret_cast<StreamIsCapturing>(dlsym(library, "cuStreamIsCapturing"));
  driver.allocate = reinterpret_cast<Allocate>(dlsym(library, "cuMemAlloc_v2"));
  driver.free = reinterpret_cast<Free>(dlsym(library, "cuMemFree_v2"));
  // The last, since who has it has all of them.
  driver.get_attribute = reinterpret_cast<GetAttribute>(dlsym(library, "cuPointerGetAttribute"));
}

// Looks again only where a library has been loaded since: the program may open CUDA at any time.
// Threads that make their first calls at the same time all look, and none goes on before it knows:
// without the driver it would take a device's memory for the host's, and touch it.
void look_for_driver() {
  if (driver.get_attribute.load()) return;
  const unsigned long long loaded = libraries_loaded();
  if (driver.looked_at.load() == loaded) return;
  find_driver();
  driver.looked_at = loaded;
}

}  // namespace

Owner owner_of(const void* const* pointers, int count) {
  look_for_driver();
  const GetAttribute get_attribute = driver.get_attribute.load();
  Owner owner = Owner::host;
  if (!get_attribute) return owner;
  for (int i = 0; i < count; i++) {
    unsigned type = 0;
    const auto address = reinterpret_cast<uintptr_t>(pointers[i]);
    if (!pointers[i] || get_attribute(&type, kAttributeMemoryType, address) != kCudaSuccess)
      continue;
    if (type != 0 && type != kMemoryTypeHost) return Owner::device;
    if (type == kMemoryTypeHost) owner = Owner::pinned;
  }
  return owner;
}

Outcome allocate_on_device(size_t bytes, void** memory) {
  *memory = nullptr;
  look_for_driver();
  const Allocate allocate = driver.allocate.load();
  if (!allocate) return {};
  unsigned long long address = 0;
  const int error = allocate(&address, bytes);
  if (error == kCudaNotInitialized || error == kCudaNoDevice || error == kCudaInvalidContext)
    return {};
  if (error != kCudaSuccess)
    return {ncclUnhandledCudaError, "ncclMemAlloc: cuMemAlloc of " + std::to_string(bytes) +
                                        " bytes: CUDA error " + std::to_string(error)};
  *memory = reinterpret_cast<void*>(address);
  return {};
}

bool free_on_device(void* memory) {
  const Free free = driver.free.load();
  return owner_of(&memory, 1) == Owner::device && free &&
         free(reinterpret_cast<uintptr_t>(memory)) == kCudaSuccess;
}

bool is_captured(cudaStream_t stream) {
  const StreamIsCapturing is_capturing = driver.is_capturing.load();
  int capturing = 0;
  return is_capturing && is_capturing(stream, &capturing) == kCudaSuccess && capturing != 0;
}

Outcome await_stream(cudaStream_t stream) {
  const StreamSynchronize synchronize = driver.synchronize.load();
  if (!synchronize) return {};
  const int error = synchronize(stream);
  if (error == kCudaSuccess || error == kCudaNotInitialized || error == kCudaNoDevice) return {};
  // A stream that has no name is of the context that the thread has, and there is none.
  const bool without_name = reinterpret_cast<uintptr_t>(stream) <= kPerThreadStream;
  if (error == kCudaInvalidContext && without_name) return {};
  return {ncclUnhandledCudaError,
          "cuStreamSynchronize: CUDA error " + std::to_string(error) + " before the call"};
}

}  // namespace sennit::nccl
