// device.cpp: see nccl/device.hpp.
#include "nccl/device.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.hpp"
#include "base/process/loaded_library.hpp"

namespace sennit::nccl {
namespace {

constexpr uintptr_t kPerThreadStream = 2;  // NULL and the legacy stream, 1, are below it
constexpr int kCaptureActive = 1;          // of CUstreamCaptureStatus
constexpr int kAttributeContext = 1, kAttributeOrdinal = 9;
constexpr unsigned kWithoutTimes = 2;  // of an event

LoadedDriver functions_of(void* library) {
  LoadedDriver found{};
#define FIND(name) found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, #name))
  FIND(cuPointerGetAttribute);
  FIND(cuMemAlloc_v2);
  FIND(cuMemFree_v2);
  FIND(cuDeviceGetCount);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxGetCurrent);
  FIND(cuCtxGetDevice);
  FIND(cuCtxPushCurrent_v2);
  FIND(cuCtxPopCurrent_v2);
  FIND(cuStreamIsCapturing);
  FIND(cuStreamGetCaptureInfo_v2);
  FIND(cuStreamSynchronize);
  FIND(cuStreamGetCtx);
  FIND(cuStreamWaitEvent);
  FIND(cuEventCreate);
  FIND(cuEventDestroy_v2);
  FIND(cuEventRecord);
#undef FIND
  return found;
}

LoadedLibrary& library() {
  static LoadedLibrary driver("libcuda.so.1");
  return driver;
}

// Null where `handle` is.
const LoadedDriver* driver_in(void* handle) {
  if (!handle) return nullptr;
  static const LoadedDriver driver = functions_of(handle);
  return &driver;
}

std::string cuda_error(const char* function, int error) {
  return std::string(function) + ": CUDA error " + std::to_string(error);
}

// That of the first which has a context of its own.
DeviceContext device_of_streams(const LoadedDriver& driver,
                                const std::vector<cudaStream_t>& streams) {
  DeviceContext device;
  for (const cudaStream_t stream : streams)
    if (!is_unnamed(stream) && !device.context) driver.cuStreamGetCtx(stream, &device.context);
  return device;
}

// Whether a call of the driver's about the stream failed since the program uses no device here. A
// stream that has no name is of the context that the thread has, and there is none.
bool means_none(int error, cudaStream_t stream) {
  return error == kCudaNotInitialized || error == kCudaNoDevice ||
         (error == kCudaInvalidContext && is_unnamed(stream));
}

}  // namespace

// A thread that did not know of the driver would take a device's memory for the host's, and touch
// it.
const LoadedDriver* loaded_driver() { return driver_in(library().find()); }
const LoadedDriver* known_driver() { return driver_in(library().known()); }

DeviceContext current_device() {
  const LoadedDriver* const driver = loaded_driver();
  DeviceContext device;
  if (!driver || !driver->cuCtxGetCurrent) return device;
  if (driver->cuCtxGetCurrent(&device.context) != kCudaSuccess) return {};
  if (device.context) {
    driver->cuCtxGetDevice(&device.number);
    return device;
  }
  // Before CUDA 12 cudaSetDevice made no context.
  using GetDevice = int (*)(int* device);
  if (const auto get = reinterpret_cast<GetDevice>(dlsym(RTLD_DEFAULT, "cudaGetDevice"));
      get && get(&device.number) == kCudaSuccess)
    return device;
  device.number = -1;
  int devices = 0;
  if (driver->cuDeviceGetCount && driver->cuDeviceGetCount(&devices) == kCudaSuccess && devices > 0)
    device.number = 0;
  return device;
}

DeviceContext numbered_device(int number) {
  struct Retained {
    Mutex mutex;
    std::map<int, CudaContext> contexts SENNIT_GUARDED_BY(mutex);
  };
  static Retained& retained = *new Retained;
  const LoadedDriver* const driver = loaded_driver();
  if (!driver || !driver->cuDevicePrimaryCtxRetain) return {};
  const MutexLock lock(retained.mutex);
  CudaContext& context = retained.contexts[number];
  if (!context && driver->cuDevicePrimaryCtxRetain(&context, number) != kCudaSuccess)
    context = nullptr;
  return context ? DeviceContext{context, number} : DeviceContext{};
}

DeviceContext device_of(const void* memory) {
  const LoadedDriver* const driver = loaded_driver();
  DeviceContext device;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (!driver || !driver->cuPointerGetAttribute || !memory) return device;
  if (driver->cuPointerGetAttribute(&device.context, kAttributeContext, address) != kCudaSuccess)
    device.context = nullptr;
  if (driver->cuPointerGetAttribute(&device.number, kAttributeOrdinal, address) != kCudaSuccess)
    device.number = -1;
  return device;
}

OnDevice::OnDevice(const DeviceContext& device) {
  if (!device.context) return;
  const LoadedDriver* const driver = known_driver();
  CudaContext current = nullptr;
  if (driver->cuCtxGetCurrent(&current) == kCudaSuccess && current == device.context) return;
  pushed_ = driver->cuCtxPushCurrent_v2(device.context) == kCudaSuccess;
}

OnDevice::~OnDevice() {
  CudaContext popped = nullptr;
  if (pushed_) known_driver()->cuCtxPopCurrent_v2(&popped);
}

bool is_unnamed(cudaStream_t stream) {
  return reinterpret_cast<uintptr_t>(stream) <= kPerThreadStream;
}

bool is_of_thread(cudaStream_t stream) {
  return reinterpret_cast<uintptr_t>(stream) == kPerThreadStream;
}

bool is_same(cudaStream_t stream, cudaStream_t other) {
  const auto is_default = [](cudaStream_t one) { return is_unnamed(one) && !is_of_thread(one); };
  return stream == other || (is_default(stream) && is_default(other));
}

Outcome find_capture(cudaStream_t stream, uint64_t* number) {
  const LoadedDriver* const driver = known_driver();
  *number = 0;
  if (!driver || !driver->cuStreamIsCapturing) return {};
  int capturing = 0;
  const int error = driver->cuStreamIsCapturing(stream, &capturing);
  if (error == kCudaCaptureImplicit)
    return {ncclInvalidUsage,
            "the call is in the default stream, while a stream that blocks is being captured into "
            "a graph: nothing can go into the default stream meanwhile, which would wait for it"};
  if (means_none(error, stream)) return {};
  if (error != kCudaSuccess)
    return {ncclUnhandledCudaError, cuda_error("cuStreamIsCapturing", error) + " before the call"};
  if (capturing == 0) return {};
  unsigned long long own = 0;
  *number = kSomeCapture;
  if (driver->cuStreamGetCaptureInfo_v2 &&
      driver->cuStreamGetCaptureInfo_v2(stream, &capturing, &own, nullptr, nullptr, nullptr) ==
          kCudaSuccess &&
      capturing == kCaptureActive)
    *number = own;
  return {};
}

Outcome check_captured_alike(const std::vector<cudaStream_t>& streams) {
  const LoadedDriver* const driver = known_driver();
  if (streams.size() < 2 || !driver || !driver->cuStreamGetCtx) return {};
  const OnDevice here(device_of_streams(*driver, streams));
  uint64_t first = 0;
  for (size_t i = 0; i < streams.size(); i++) {
    uint64_t number = 0;
    if (Outcome off = find_capture(streams[i], &number); !off.ok()) return off;
    if (i == 0) first = number;
    if (number != first)
      return {ncclInvalidUsage,
              "the streams of one communicator's calls in a group are not all being captured into "
              "the same graph, nor all into none: they wait for one another, which is possible "
              "only within a graph or outside of all"};
  }
  return {};
}

Outcome await_stream(cudaStream_t stream) {
  const LoadedDriver* const driver = known_driver();
  if (!driver || !driver->cuStreamSynchronize) return {};
  const int error = driver->cuStreamSynchronize(stream);
  if (error == kCudaSuccess || means_none(error, stream)) return {};
  return {ncclUnhandledCudaError, cuda_error("cuStreamSynchronize", error) + " before the call"};
}

// The first waits for all others, and then these for it: an event means what was recorded last at
// the time at which a stream is told to wait for it, so one serves.
Outcome join_streams(const std::vector<cudaStream_t>& streams) {
  const LoadedDriver* const driver = known_driver();
  if (streams.size() < 2 || !driver || !driver->cuEventRecord) return {};
  const OnDevice here(device_of_streams(*driver, streams));
  CudaEvent event = nullptr;
  if (const int error = driver->cuEventCreate(&event, kWithoutTimes); error != kCudaSuccess)
    return {ncclUnhandledCudaError, cuda_error("cuEventCreate", error)};
  int error = kCudaSuccess;
  const auto follow = [&](cudaStream_t after, cudaStream_t stream) {
    if (error == kCudaSuccess) error = driver->cuEventRecord(event, stream);
    if (error == kCudaSuccess) error = driver->cuStreamWaitEvent(after, event, 0);
  };
  for (size_t i = 1; i < streams.size(); i++) follow(streams.front(), streams[i]);
  for (size_t i = 1; i < streams.size(); i++) follow(streams[i], streams.front());
  driver->cuEventDestroy_v2(event);
  if (error == kCudaSuccess) return {};
  return {ncclUnhandledCudaError,
          cuda_error("cuStreamWaitEvent", error) + ", for the streams of one group"};
}

}  // namespace sennit::nccl
