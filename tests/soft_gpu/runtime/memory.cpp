// memory.cpp: the runtime's functions of memory.
#include <cstdint>

#include "tests/soft_gpu/runtime/thread.hpp"

using namespace soft_gpu::runtime;

namespace {

CUdeviceptr number(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// Makes memory by a function of the driver's, which takes its address as a number.
template <typename F>
int allocate(void** memory, const F& make) {
  return call([&] {
    CUdeviceptr made = 0;
    const int error = make(&made);
    if (error == 0) *memory = reinterpret_cast<void*>(made);
    return error;
  });
}

// cudaPointerAttributes of CUDA 13.
struct PointerAttributes {
  int kind;  // 0: of nobody that CUDA knows, 1: the host's, 2: a device's, 3: managed
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

}  // namespace

extern "C" {

int cudaMalloc(void** memory, size_t bytes) {
  return allocate(memory, [&](CUdeviceptr* made) { return cuMemAlloc_v2(made, bytes); });
}
int cudaMallocAsync(void** memory, size_t bytes, CUstream stream) {
  return allocate(memory, [&](CUdeviceptr* made) { return cuMemAllocAsync(made, bytes, stream); });
}
int cudaMallocManaged(void** memory, size_t bytes, unsigned flags) {
  return allocate(memory, [&](CUdeviceptr* made) { return cuMemAllocManaged(made, bytes, flags); });
}
int cudaFree(void* memory) {
  return call([&] { return cuMemFree_v2(number(memory)); });
}
int cudaFreeAsync(void* memory, CUstream stream) {
  return call([&] { return cuMemFreeAsync(number(memory), stream); });
}

int cudaHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return call([&] { return cuMemHostAlloc(memory, bytes, flags); });
}
int cudaMallocHost(void** memory, size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }
int cudaFreeHost(void* memory) {
  return call([&] { return memory == nullptr ? 0 : cuMemFreeHost(memory); });
}
int cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  return call([&] { return cuMemHostRegister_v2(memory, bytes, flags); });
}
int cudaHostUnregister(void* memory) {
  return call([&] { return cuMemHostUnregister(memory); });
}

int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  return call([&] { return cuMemcpy(number(to), number(from), bytes); });
}
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, CUstream stream) {
  return call([&] { return cuMemcpyAsync(number(to), number(from), bytes, stream); });
}
int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, CUstream stream) {
  return cudaMemcpyAsync(to, from, bytes, 0, stream);
}
// A row after the other: their pitches are bytes from one to the next.
int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t rows, int, CUstream stream) {
  for (size_t row = 0; row < rows; row++)
    if (const int error =
            cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch,
                            static_cast<const char*>(from) + row * from_pitch, width, 0, stream))
      return error;
  return 0;
}
int cudaMemset(void* memory, int value, size_t bytes) {
  return call(
      [&] { return cuMemsetD8_v2(number(memory), static_cast<unsigned char>(value), bytes); });
}
int cudaMemsetAsync(void* memory, int value, size_t bytes, CUstream stream) {
  return call([&] {
    return cuMemsetD8Async(number(memory), static_cast<unsigned char>(value), bytes, stream);
  });
}

int cudaPointerGetAttributes(PointerAttributes* attributes, const void* memory) {
  constexpr int kAttributes[] = {2, 8, 9, 3, 4};
  unsigned kind = 0, managed = 0;
  *attributes = {};
  void* data[] = {&kind, &managed, &attributes->device, &attributes->device_pointer,
                  &attributes->host_pointer};
  if (const int error = begin()) return error;
  if (const int error = cuPointerGetAttributes(5, kAttributes, data, number(memory)))
    return end(error);
  attributes->kind = managed != 0 ? 3 : static_cast<int>(kind);
  return 0;
}

}  // extern "C"
