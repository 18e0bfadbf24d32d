// calls_context.cpp: the driver's functions of the process, its devices and contexts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/current.hpp"

namespace soft_gpu {
namespace {

// The contexts that a thread has pushed. Nothing destroys it: a program's static objects call after
// the thread's own are gone.
struct ContextStack {
  static constexpr int kMost = 64;
  Gpu* contexts[kMost];
  int depth;
};
thread_local ContextStack stack;

constexpr int kHostPointersServe = 91;  // CUdevice_attribute

struct ErrorWords {
  int number;
  const char* name;
  const char* text;
};
constexpr ErrorWords kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for the device"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"},
    {kPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
};

int error_words(int error, const char** words, const char* ErrorWords::*member) {
  count_call();
  const auto* const found =
      std::find_if(std::begin(kErrors), std::end(kErrors),
                   [&](const ErrorWords& each) { return each.number == error; });
  *words = found == std::end(kErrors) ? nullptr : found->*member;
  return found == std::end(kErrors) ? kInvalidValue : 0;
}

bool is_device(int ordinal) { return ordinal >= 0 && ordinal < static_cast<int>(gpus().size()); }

// The device of a context's handle, or null.
Gpu* find_gpu(CUcontext context) {
  for (Gpu* const gpu : gpus())
    if (reinterpret_cast<CUcontext>(gpu) == context) return gpu;
  return nullptr;
}

// Handles of streams. Never destroyed.
struct Handles {
  std::mutex mutex;
  std::map<CUstream, std::shared_ptr<StreamThread>> streams;
};
Handles& handles() {
  static Handles& it = *new Handles;
  return it;
}

std::shared_ptr<StreamThread> stream_of_thread(Gpu* gpu) {
  thread_local std::map<Gpu*, std::shared_ptr<StreamThread>> streams;
  std::shared_ptr<StreamThread>& stream = streams[gpu];
  if (stream == nullptr) stream = gpu->add_stream(true);
  return stream;
}

}  // namespace

const std::vector<Gpu*>& gpus() {
  static const std::vector<Gpu*>& all = *[] {
    const char* const given = std::getenv("SOFT_GPU_DEVICES");
    auto* const made = new std::vector<Gpu*>;
    for (int i = 0; i < (given == nullptr ? 1 : std::atoi(given)); i++) made->push_back(new Gpu(i));
    return made;
  }();
  return all;
}

Gpu* current() { return stack.depth == 0 ? nullptr : stack.contexts[stack.depth - 1]; }

int enter(Gpu** gpu) {
  if (const int error = enter()) return error;
  *gpu = current();
  if (*gpu == nullptr) return kInvalidContext;
  const std::lock_guard lock((*gpu)->mutex);
  return (*gpu)->retained > 0 ? 0 : kContextIsDestroyed;
}

int find_stream(CUstream handle, std::shared_ptr<StreamThread>* stream) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 2 && current() == nullptr) return kInvalidContext;
  if (number <= 2) {
    *stream = number == 2 ? stream_of_thread(current()) : current()->legacy_stream();
    return 0;
  }
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().streams.find(handle);
  if (found == handles().streams.end()) return kInvalidHandle;
  *stream = found->second;
  return 0;
}

bool is_legacy(CUstream handle) { return reinterpret_cast<uintptr_t>(handle) <= 1; }

int find_stream_to_use(CUstream handle, std::shared_ptr<StreamThread>* stream) {
  if (const int error = find_stream(handle, stream)) return error;
  if (!is_legacy(handle)) return 0;
  return (*stream)->gpu->invalidate_captures_of_blocking() ? kCaptureImplicit : 0;
}

CUstream add_handle(const std::shared_ptr<StreamThread>& stream) {
  auto* const handle = reinterpret_cast<CUstream>(stream.get());
  const std::lock_guard lock(handles().mutex);
  handles().streams[handle] = stream;
  return handle;
}

std::shared_ptr<StreamThread> take_handle(CUstream handle) {
  const std::lock_guard lock(handles().mutex);
  const auto taken = handles().streams.extract(handle);
  return taken.empty() ? nullptr : taken.mapped();
}

}  // namespace soft_gpu

using namespace soft_gpu;

int cuInit(unsigned flags) {
  count_call();
  if (flags != 0) return kInvalidValue;
  if (gpus().empty()) return kNoDevice;
  initialize();
  return 0;
}

int cuDriverGetVersion(int* version) {
  count_call();
  *version = 13000;
  return 0;
}

int cuGetErrorName(int error, const char** name) {
  return error_words(error, name, &ErrorWords::name);
}
int cuGetErrorString(int error, const char** text) {
  return error_words(error, text, &ErrorWords::text);
}

int cuDeviceGet(CUdevice* device, int ordinal) {
  if (const int error = enter()) return error;
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return 0;
}

int cuDeviceGetCount(int* count) {
  if (const int error = enter()) return error;
  *count = static_cast<int>(gpus().size());
  return 0;
}

int cuDeviceGetName(char* name, int bytes, CUdevice device) {
  if (const int error = enter()) return error;
  if (!is_device(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(bytes), "software GPU %d", device);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  if (const int error = enter()) return error;
  if (!is_device(device)) return kInvalidDevice;
  static constexpr std::pair<int, int> kKnown[] = {
      {1, 1024},       // threads of a block
      {10, 32},        // threads of a warp
      {16, 8},         // multiprocessors
      {38, 64 << 10},  // bytes of the second cache
      {41, 1},         // one address space
      {75, 9},
      {76, 0},                  // compute capability
      {kHostPointersServe, 1},  // registered memory has the same address on the device
  };
  *value = 0;
  for (const auto& [known, is] : kKnown)
    if (known == attribute) *value = is;
  if (attribute == kHostPointersServe && oldness() == 1) *value = 0;
  return 0;
}

int cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const int error = enter()) return error;
  if (!is_device(device)) return kInvalidDevice;
  Gpu* const gpu = gpus()[static_cast<size_t>(device)];
  const std::lock_guard lock(gpu->mutex);
  gpu->retained++;
  *context = reinterpret_cast<CUcontext>(gpu);
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (const int error = enter()) return error;
  if (!is_device(device)) return kInvalidDevice;
  Gpu* const gpu = gpus()[static_cast<size_t>(device)];
  const std::lock_guard lock(gpu->mutex);
  if (gpu->retained == 0) return kInvalidContext;
  gpu->retained--;
  return 0;
}

int cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const int error = enter()) return error;
  if (!is_device(device)) return kInvalidDevice;
  Gpu* const gpu = gpus()[static_cast<size_t>(device)];
  const std::lock_guard lock(gpu->mutex);
  *flags = 0;
  *active = gpu->retained > 0 ? 1 : 0;
  return 0;
}

int cuCtxGetCurrent(CUcontext* context) {
  if (const int error = enter()) return error;
  *context = reinterpret_cast<CUcontext>(current());
  return 0;
}

int cuCtxSetCurrent(CUcontext context) {
  if (const int error = enter()) return error;
  Gpu* const gpu = find_gpu(context);
  if (context != nullptr && gpu == nullptr) return kInvalidContext;
  if (stack.depth > 0) stack.depth--;
  if (gpu != nullptr) stack.contexts[stack.depth++] = gpu;
  return 0;
}

int cuCtxPushCurrent_v2(CUcontext context) {
  if (const int error = enter()) return error;
  Gpu* const gpu = find_gpu(context);
  if (gpu == nullptr || stack.depth == ContextStack::kMost) return kInvalidContext;
  stack.contexts[stack.depth++] = gpu;
  return 0;
}

int cuCtxPopCurrent_v2(CUcontext* context) {
  if (const int error = enter()) return error;
  if (stack.depth == 0) return kInvalidContext;
  if (context != nullptr) *context = reinterpret_cast<CUcontext>(current());
  stack.depth--;
  return 0;
}

int cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  const Gpu* const other = find_gpu(peer);
  if (other == nullptr || other == gpu) return kInvalidDevice;
  const char* const given = std::getenv("SOFT_GPU_PEERS");
  if (given != nullptr && std::atoi(given) == 0) return kPeerAccessUnsupported;
  const std::lock_guard lock(gpu->lock);
  gpu->drain();
  const uint64_t bit = uint64_t{1} << other->ordinal;
  return gpu->peers.fetch_or(bit) & bit ? kPeerAccessAlreadyEnabled : 0;
}

int cuCtxGetDevice(CUdevice* device) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  *device = gpu->ordinal;
  return 0;
}

int cuCtxSynchronize() {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  if (const int error = forbidden_while_capturing()) return error;
  const std::lock_guard lock(gpu->lock);
  gpu->drain();
  return device_error();
}
