// thread.hpp: what CUDA's runtime knows of each thread: its device, and its last error.
#pragma once

#include <cstddef>

#include "tests/soft_gpu/cuda_functions.hpp"

namespace soft_gpu::runtime {

// Numbers of cudaError_t, which are CUresult's but for these.
inline constexpr int kNoKernelImage = 209, kNotSupported = 801;

// A call begins: the driver is ready, and a context of the thread's device is current, that of the
// first one where nobody has chosen. 0, or why not, which is remembered.
int begin();
// What a call returns: `error`, which is remembered; that something is not ready is no error.
int end(int error);
// The error that was remembered, which is forgotten where `forgets` says so.
int last_error(bool forgets);
// The error of a call of the driver's, made between the two.
template <typename F>
int call(const F& driver) {
  if (const int error = begin()) return error;
  return end(driver());
}
// Makes the device's context current.
int set_device(int device);

}  // namespace soft_gpu::runtime
