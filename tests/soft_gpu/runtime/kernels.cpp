// kernels.cpp: the runtime's functions of kernels. A program's kernels are known by name, so that
// who launches one is told which, and are not done: the software GPU has none but Sennit's.
#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "tests/soft_gpu/runtime/thread.hpp"

using namespace soft_gpu::runtime;

namespace {

struct Kernels {
  std::mutex mutex;
  std::map<const void*, const char*> names;
  std::set<const void*> told;
};
Kernels& kernels() {
  static auto* const all = new Kernels;
  return *all;
}

int refuse(const void* kernel) {
  const std::lock_guard lock(kernels().mutex);
  const auto found = kernels().names.find(kernel);
  if (kernels().told.insert(kernel).second)
    std::fprintf(stderr, "soft_gpu: the kernel %s is none of the software GPU's\n",
                 found == kernels().names.end() ? "(without a name)" : found->second);
  return end(kNoKernelImage);
}

int not_there() { return kNotSupported; }

struct Dimensions {
  unsigned x, y, z;
};

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  static void* one;
  one = binary;
  return &one;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* kernel, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  const std::lock_guard lock(kernels().mutex);
  kernels().names[kernel] = name;
}

// What `kernel<<<grid, block>>>` is made of.
unsigned __cudaPushCallConfiguration(Dimensions, Dimensions, size_t, void*) { return 0; }
int __cudaPopCallConfiguration(Dimensions* grid, Dimensions* block, size_t* shared, void** stream) {
  *grid = *block = {1, 1, 1};
  *shared = 0;
  *stream = nullptr;
  return 0;
}
int __cudaGetKernel(const void** handle, const void* kernel) {
  *handle = kernel;
  return 0;
}
int __cudaLaunchKernel(const void* kernel, Dimensions, Dimensions, void**, size_t, CUstream) {
  return refuse(kernel);
}
int cudaLaunchKernel(const void* kernel, Dimensions, Dimensions, void**, size_t, CUstream) {
  return refuse(kernel);
}
int cudaLaunchCooperativeKernel(const void* kernel, Dimensions, Dimensions, void**, size_t,
                                CUstream) {
  return refuse(kernel);
}
int cudaLaunchKernelExC(const void*, const void* kernel, void**) { return refuse(kernel); }
int cudaFuncGetAttributes(void*, const void* kernel) { return refuse(kernel); }
int cudaFuncSetAttribute(const void*, int, int) { return 0; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void* kernel, int, size_t) {
  return refuse(kernel);
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*, const void* kernel, int, size_t,
                                                           unsigned) {
  return refuse(kernel);
}

// PyTorch asks for all functions of the driver's at once that it may ever call: those that are not
// there refuse when they are called.
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                     unsigned long long, int* found) {
  *function = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = dlsym(RTLD_DEFAULT, name);
  if (*function == nullptr) *function = reinterpret_cast<void*>(&not_there);
  if (found != nullptr) *found = 0;
  return 0;
}

}  // extern "C"
