// devices.cpp: the runtime's functions of the process, its devices and their properties.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/soft_gpu/process.hpp"
#include "tests/soft_gpu/runtime/thread.hpp"

using namespace soft_gpu::runtime;

namespace {

constexpr size_t kMemoryBytes = size_t{64} << 30;

// cudaDeviceProp of CUDA 13: where what PyTorch asks for stands in it.
constexpr size_t kPropertiesBytes = 1008, kNameBytes = 256, kTotalMemory = 288;
constexpr std::pair<size_t, int> kNumbers[] = {
    {296, 48 << 10},                     // bytes of shared memory of a block
    {304, 64 << 10},                     // registers of a block
    {308, 32},                           // threads of a warp
    {320, 1024},                         // threads of a block
    {324, 1024},       {328, 1024},      // and in its first two dimensions
    {332, 64},                           // and in the third
    {336, 0x7fffffff}, {340, 65535},     // blocks in the dimensions of a grid
    {344, 65535},      {352, 64 << 10},  // bytes of constant memory
    {360, 9},          {364, 0},         // compute capability
    {384, 8},                            // multiprocessors
    {392, 1},                            // maps memory of the host's
    {560, 1},                            // kernels beside one another
    {584, 1},                            // engines that copy
    {588, 1},                            // one address space
    {592, 512},                          // bits of the way to memory
    {596, 64 << 10},                     // bytes of the second cache
    {604, 2048},                         // threads of a multiprocessor
    {624, 64 << 10},   {632, 64 << 10},  // its bytes of shared memory, its registers
    {636, 1},                            // managed memory
    {672, 48 << 10},                     // bytes of shared memory of a block that asks for it
};

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* count) {
  if (const int error = cuInit(0)) return end(error);
  return end(cuDeviceGetCount(count));
}

int cudaGetDevice(int* device) {
  return call([&] { return cuCtxGetDevice(device); });
}

int cudaSetDevice(int device) { return set_device(device); }

int cudaDeviceSynchronize() {
  return call([&] { return cuCtxSynchronize(); });
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return call([&] { return cuDeviceGetAttribute(value, attribute, device); });
}

int cudaGetDeviceProperties(void* properties, int device) {
  if (const int error = begin()) return error;
  auto* const bytes = static_cast<char*>(properties);
  std::memset(bytes, 0, kPropertiesBytes);
  if (const int error = cuDeviceGetName(bytes, kNameBytes, device)) return end(error);
  bytes[kNameBytes] = static_cast<char>(device + 1);  // its UUID
  std::memcpy(bytes + kTotalMemory, &kMemoryBytes, sizeof kMemoryBytes);
  for (const auto& [at, number] : kNumbers) std::memcpy(bytes + at, &number, sizeof number);
  return 0;
}

int cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return 0;
}

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -1;
  return 0;
}

int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return 0;
}

int cudaDriverGetVersion(int* version) { return cuDriverGetVersion(version); }
int cudaRuntimeGetVersion(int* version) { return cuDriverGetVersion(version); }

int cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kMemoryBytes;
  return begin();
}

int cudaGetLastError() { return last_error(true); }
int cudaPeekAtLastError() { return last_error(false); }

const char* cudaGetErrorName(int error) {
  const char* name = nullptr;
  return cuGetErrorName(error, &name) == 0 ? name : "cudaErrorUnknown";
}

const char* cudaGetErrorString(int error) {
  const char* text = nullptr;
  if (error == kNotSupported) return "the software GPU does not do this";
  if (error == kNoKernelImage) return "the software GPU has no kernels but Sennit's";
  return cuGetErrorString(error, &text) == 0 ? text : "unrecognized error code";
}

int cudaProfilerStart() { return 0; }
int cudaProfilerStop() { return 0; }

}  // extern "C"
