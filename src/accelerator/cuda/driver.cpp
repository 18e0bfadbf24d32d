// driver.cpp: see accelerator/cuda/driver.hpp.
#include "accelerator/cuda/driver.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <fmt/core.h>

namespace sennit::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename F>
bool find(void* library, const char* name, F** function, std::string* missing) {
  *function = reinterpret_cast<F*>(dlsym(library, name));
  if (!*function && missing->empty()) *missing = name;
  return *function != nullptr;
}

// The first that is not there and has to be, or nothing.
std::string find_all(void* library, Driver& d) {
  std::string missing, lacked;  // lacked: what it can do without
#define FIND(name) find(library, #name, &d.name, &missing)
  FIND(cuInit);
  FIND(cuGetErrorName);
  FIND(cuDeviceGetCount);
  FIND(cuDeviceGetAttribute);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuDevicePrimaryCtxRelease_v2);
  FIND(cuDevicePrimaryCtxGetState);
  FIND(cuCtxGetCurrent);
  FIND(cuCtxSetCurrent);
  FIND(cuCtxGetDevice);
  FIND(cuCtxEnablePeerAccess);
  FIND(cuCtxPushCurrent_v2);
  FIND(cuCtxPopCurrent_v2);
  FIND(cuPointerGetAttributes);
  FIND(cuMemAlloc_v2);
  FIND(cuMemcpyAsync);
  FIND(cuMemsetD8Async);
  FIND(cuMemHostRegister_v2);
  FIND(cuIpcGetMemHandle);
  FIND(cuIpcOpenMemHandle_v2);
  FIND(cuIpcCloseMemHandle);
  FIND(cuModuleLoadData);
  FIND(cuModuleUnload);
  FIND(cuModuleGetFunction);
  FIND(cuLaunchKernel);
  FIND(cuStreamCreate);
  FIND(cuStreamGetCtx);
  FIND(cuStreamSynchronize);
  FIND(cuStreamQuery);
  FIND(cuStreamIsCapturing);
  FIND(cuStreamGetCaptureInfo_v2);
  FIND(cuThreadExchangeStreamCaptureMode);
  FIND(cuUserObjectCreate);
  FIND(cuUserObjectRelease);
  FIND(cuGraphRetainUserObject);
#undef FIND
#define FIND(name) find(library, #name, &d.name, &lacked)
  FIND(cuStreamGetFlags);
  FIND(cuStreamBeginCapture_v2);
  FIND(cuStreamEndCapture);
  FIND(cuGraphInstantiateWithFlags);
  FIND(cuGraphLaunch);
  FIND(cuGraphExecDestroy);
  FIND(cuGraphDestroy);
#undef FIND
  return missing;
}

Result<Driver> open_driver() {
  void* const library = dlopen(kLibrary, RTLD_NOW);
  if (!library)
    return Status(SENNIT_NOT_FOUND,
                  fmt::format("CUDA's driver does not open: {}: install NVIDIA's driver, or pass "
                              "host memory",
                              dlerror()));
  Driver d{};
  const std::string missing = find_all(library, d);
  if (!missing.empty())
    return Status(SENNIT_UNSUPPORTED,
                  fmt::format("CUDA's driver, {}, has no {}: it is too old", kLibrary, missing));
  if (const int error = d.cuInit(0); error != kSuccess)
    return Status(SENNIT_NOT_FOUND,
                  fmt::format("CUDA's driver does not start: {}", error_text(d, error)));
  return d;
}

}  // namespace

Result<const Driver*> driver() {
  // Never destroyed: threads ask until the process is gone.
  static const Result<Driver>& opened = *new Result<Driver>(open_driver());
  if (!opened) return opened.status();
  return &*opened;
}

std::string error_text(const Driver& driver, int error) {
  const char* name = nullptr;
  if (driver.cuGetErrorName(error, &name) != kSuccess || !name) name = "an unknown error";
  return fmt::format("{} ({})", name, error);
}

Result<std::byte*> pinned_memory(const Driver& driver, size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Status(SENNIT_OUT_OF_RESOURCES, fmt::format("no memory for {} bytes", bytes));
  madvise(memory, bytes, MADV_DONTFORK);
  const int error =
      driver.cuMemHostRegister_v2(memory, bytes, kRegisterPortable | kRegisterDeviceMap);
  if (error == kSuccess) return static_cast<std::byte*>(memory);
  munmap(memory, bytes);
  return Status(SENNIT_OUT_OF_RESOURCES,
                fmt::format("cuMemHostRegister of {} bytes: {}", bytes, error_text(driver, error)));
}

}  // namespace sennit::cuda
