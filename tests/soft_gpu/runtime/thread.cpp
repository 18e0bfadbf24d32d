// thread.cpp: see thread.hpp.
#include "tests/soft_gpu/runtime/thread.hpp"

#include "tests/soft_gpu/process.hpp"

namespace soft_gpu::runtime {
namespace {
thread_local int remembered = 0;
}  // namespace

int end(int error) {
  if (error != 0 && error != kNotReady) remembered = error;
  return error;
}

int last_error(bool forgets) {
  const int error = remembered;
  if (forgets) remembered = 0;
  return error;
}

int set_device(int device) {
  static const int ready = cuInit(0);
  CUcontext context = nullptr;
  if (ready != 0) return end(ready);
  // The primary context is never given back, as CUDA's runtime keeps it.
  if (const int error = cuDevicePrimaryCtxRetain(&context, device)) return end(error);
  return end(cuCtxSetCurrent(context));
}

int begin() {
  CUcontext context = nullptr;
  if (cuCtxGetCurrent(&context) == 0 && context != nullptr) return 0;
  return set_device(0);
}

}  // namespace soft_gpu::runtime
