// device.hpp: the CUDA device that a communicator is of, and the streams of calls.
//
// CUDA's driver is asked only where the program has loaded it; nothing is loaded or started here.
// Its handles are its own types under the names that its header gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// ---- the driver ----

using CudaEvent = struct CUevent_st*;
using CudaAddress = unsigned long long;

// Of CUDA's driver API, whose numbers never change.
inline constexpr int kCudaSuccess = 0, kCudaNotInitialized = 3, kCudaNoDevice = 100,
                     kCudaInvalidContext = 201, kCudaCaptureImplicit = 906;

// By their names in libcuda.so.1; null where this driver lacks one. All return an error, or
// kCudaSuccess.
struct LoadedDriver {
  int (*cuPointerGetAttribute)(void* data, int attribute, CudaAddress memory);
  int (*cuMemAlloc_v2)(CudaAddress* memory, size_t bytes);
  int (*cuMemFree_v2)(CudaAddress memory);
  int (*cuDeviceGetCount)(int* count);
  int (*cuDevicePrimaryCtxRetain)(CudaContext* context, int device);
  int (*cuCtxGetCurrent)(CudaContext* context);
  int (*cuCtxGetDevice)(int* device);
  int (*cuCtxPushCurrent_v2)(CudaContext context);
  int (*cuCtxPopCurrent_v2)(CudaContext* context);
  int (*cuStreamIsCapturing)(cudaStream_t stream, int* capturing);
  int (*cuStreamGetCaptureInfo_v2)(cudaStream_t stream, int* capturing, unsigned long long* number,
                                   void** graph, const void** dependencies, size_t* count);
  int (*cuStreamSynchronize)(cudaStream_t stream);
  int (*cuStreamGetCtx)(cudaStream_t stream, CudaContext* context);
  int (*cuStreamWaitEvent)(cudaStream_t stream, CudaEvent event, unsigned flags);
  int (*cuEventCreate)(CudaEvent* event, unsigned flags);
  int (*cuEventDestroy_v2)(CudaEvent event);
  int (*cuEventRecord)(CudaEvent event, cudaStream_t stream);
};
// Null where the program has not loaded it. Any thread, at any time: the program may still do so.
const LoadedDriver* loaded_driver();
// The same as of the last look, for what comes behind one in a call.
const LoadedDriver* known_driver();

// ---- devices ----

// That which is current in the calling thread; what CUDA's runtime takes, its first one, where none
// is. None where the program uses no CUDA.
DeviceContext current_device();
// The primary context of the device with this number, which is retained for as long as the process
// lives. None where there is none, or the program uses no CUDA.
DeviceContext numbered_device(int number);
// That which the memory was allocated on, or pinned for; none where it is neither.
DeviceContext device_of(const void* memory);

// The device is current in this thread meanwhile, as far as it has a context.
class OnDevice {
 public:
  explicit OnDevice(const DeviceContext& device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  bool pushed_ = false;
};

// ---- streams ----

// Those that have numbers for names, whose context is that which is current: the default stream, by
// either name, and that of each thread.
bool is_unnamed(cudaStream_t stream);
// cudaStreamPerThread: there are as many as threads, and only its own reaches one.
bool is_of_thread(cudaStream_t stream);
// Whether this thread means the same stream by both: the default one has two handles.
bool is_same(cudaStream_t stream, cudaStream_t other);

// These come behind loaded_driver() in a call, as owner_of() asks for it.

// The number of what the stream is being captured into, of which no two have the same; 0: nothing.
// What was made invalid, or has no number with this driver, is kSomeCapture.
inline constexpr uint64_t kSomeCapture = UINT64_MAX;
Outcome find_capture(cudaStream_t stream, uint64_t* number);
// That one graph gets all that is put into these streams, or none does. They are of one device,
// which is current where one of them is unnamed. Of fewer than two nothing is asked.
Outcome check_captured_alike(const std::vector<cudaStream_t>& streams);

// Waits until the stream has come to this point, so that a call on host memory that begins now has
// the stream's order, and is over when it returns.
Outcome await_stream(cudaStream_t stream);

// All of these streams, which are of one device, go on from here only once each has come here. That
// device is current where one of them is unnamed. Of fewer than two nothing is done.
Outcome join_streams(const std::vector<cudaStream_t>& streams);

}  // namespace sennit::nccl
