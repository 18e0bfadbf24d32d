// device_health.hpp: whether a CUDA device has failed, for calls whose kernels would never say that
// they are done.
//
// After a fault, of whatever kernel, the driver ends all kernels of a device without a word to
// those who wait for them; each later call of the driver returns the error. So a thread asks, where
// kernels are out, or may be in a graph, and none has ended for a second. It is a thread of its own
// because the driver may have it wait for a kernel, which waits for the threads that drive calls.
#pragma once

#include <atomic>
#include <cstdint>

#include "accelerator/cuda/driver.hpp"
#include "accelerator/cuda/kernels_out.hpp"

namespace sennit::cuda {

// Lives as long as the process. Any thread.
class DeviceHealth {
 public:
  // `stream`: any of the context's. `kernels`: of the device.
  DeviceHealth(const Driver& driver, Context context, Stream stream, const KernelsOut& kernels);
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  // What was heard last: an error once the device has failed, which no device recovers from.
  Status status() const;

 private:
  void watch();

  const Driver& driver_;
  const Context context_;
  const Stream stream_;
  const KernelsOut& kernels_;
  std::atomic<int> error_{kSuccess};
};

}  // namespace sennit::cuda
