// calls_stream.cpp: the driver's functions of streams, events and kernels.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>

#include "accelerator/cuda/mailbox.hpp"
#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/current.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"
#include "tests/soft_gpu/worker.hpp"

namespace soft_gpu {
namespace {

constexpr unsigned kNonBlocking = 1;

// Events, by their handles: the place that each was recorded at last. Never destroyed.
struct Events {
  std::mutex mutex;
  std::map<CUevent, Point> all;
  uintptr_t made = 0;
};
Events& events() {
  static Events& it = *new Events;
  return it;
}

int find_event(CUevent event, Point* recorded) {
  const std::lock_guard lock(events().mutex);
  const auto found = events().all.find(event);
  if (found == events().all.end()) return kInvalidHandle;
  *recorded = found->second;
  return 0;
}

// enter(), and the stream, which is put to use.
int enter_stream(CUstream handle, std::shared_ptr<StreamThread>* stream) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  return find_stream_to_use(handle, stream);
}
// The same, where only what the stream is is asked for.
int enter_known(CUstream handle, std::shared_ptr<StreamThread>* stream) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  return find_stream(handle, stream);
}

// What asks for a stream's state makes a capture that it is part of invalid, and others as well.
int not_captured(StreamThread& stream) {
  if (const int error = forbidden_while_capturing()) return error;
  const std::shared_ptr<Capture> capture = stream.gpu->capture_of(stream);
  if (capture == nullptr) return 0;
  const std::lock_guard lock(captures_mutex());
  capture->invalid = true;
  return kCaptureUnsupported;
}

// What is captured depends on nothing that is not: the graph would not have it.
int not_from_outside(StreamThread& stream, const Point& recorded) {
  const std::shared_ptr<Capture> capture = stream.gpu->capture_of(stream);
  if (capture == nullptr || recorded.stream == nullptr) return 0;
  const std::lock_guard lock(captures_mutex());
  capture->invalid = true;
  return kCaptureIsolation;
}

// What modules and functions are handles of: nothing but the worker is ever loaded.
int the_module, the_function;

void hold(void* handle, bool held) {
  std::shared_ptr<StreamThread> stream;
  if (find_stream(static_cast<CUstream>(handle), &stream) != 0) std::abort();
  stream->hold(held);
}

}  // namespace
}  // namespace soft_gpu

void soft_gpu_hold(void* stream) { soft_gpu::hold(stream, true); }
void soft_gpu_release(void* stream) { soft_gpu::hold(stream, false); }

using namespace soft_gpu;

int cuStreamCreate(CUstream* stream, unsigned flags) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  *stream = add_handle(gpu->add_stream((flags & kNonBlocking) == 0));
  return 0;
}

int cuStreamDestroy_v2(CUstream stream) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  const std::shared_ptr<StreamThread> taken = take_handle(stream);
  if (taken == nullptr) return kInvalidHandle;
  taken->close();
  return 0;
}

int cuStreamSynchronize(CUstream handle) {
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter_stream(handle, &stream)) return error;
  if (const int error = not_captured(*stream)) return error;
  for (const Point& end : stream->gpu->ends(*stream)) end.wait();
  return device_error();
}

int cuStreamQuery(CUstream handle) {
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter_stream(handle, &stream)) return error;
  if (const int error = not_captured(*stream)) return error;
  for (const Point& end : stream->gpu->ends(*stream))
    if (!end.passed()) return kNotReady;
  return device_error();
}

int cuStreamGetCtx(CUstream handle, CUcontext* context) {
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter_known(handle, &stream)) return error;
  *context = reinterpret_cast<CUcontext>(stream->gpu);
  return 0;
}

int cuStreamGetFlags(CUstream handle, unsigned* flags) {
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter_known(handle, &stream)) return error;
  *flags = stream->blocking ? 0 : kNonBlocking;
  return 0;
}

int cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  std::shared_ptr<StreamThread> stream;
  Point recorded;
  if (const int error = enter_stream(handle, &stream)) return error;
  if (const int error = find_event(event, &recorded)) return error;
  if (const int error = not_from_outside(*stream, recorded)) return error;
  const std::lock_guard lock(stream->gpu->lock);
  stream->gpu->push(*stream, nullptr, {recorded});
  return 0;
}

int cuEventCreate(CUevent* event, unsigned) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  const std::lock_guard lock(events().mutex);
  *event = reinterpret_cast<CUevent>(++events().made);
  events().all[*event] = {};
  return 0;
}

int cuEventDestroy_v2(CUevent event) {
  if (const int error = enter()) return error;
  const std::lock_guard lock(events().mutex);
  return events().all.erase(event) == 1 ? 0 : kInvalidHandle;
}

int cuEventRecord(CUevent event, CUstream handle) {
  std::shared_ptr<StreamThread> stream;
  Point recorded;
  if (const int error = enter_stream(handle, &stream)) return error;
  if (const int error = find_event(event, &recorded)) return error;
  const std::lock_guard lock(stream->gpu->lock);
  recorded = stream->gpu->push(*stream, nullptr);
  const std::lock_guard events_lock(events().mutex);
  events().all[event] = recorded;
  return 0;
}

int cuEventQuery(CUevent event) {
  Point recorded;
  if (const int error = enter()) return error;
  if (const int error = forbidden_while_capturing()) return error;
  if (const int error = find_event(event, &recorded)) return error;
  return recorded.passed() ? device_error() : kNotReady;
}

int cuEventSynchronize(CUevent event) {
  Point recorded;
  if (const int error = enter()) return error;
  if (const int error = forbidden_while_capturing()) return error;
  if (const int error = find_event(event, &recorded)) return error;
  recorded.wait();
  return device_error();
}

int cuLaunchHostFunc(CUstream handle, void (*function)(void*), void* data) {
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter_stream(handle, &stream)) return error;
  if (function == nullptr) return kInvalidValue;
  const std::lock_guard lock(stream->gpu->lock);
  stream->gpu->push(*stream, [=] {
    const HostFunction here;
    function(data);
  });
  return 0;
}

int cuModuleLoadData(CUmodule* module, const void* image) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  if (const int error = forbidden_while_capturing()) return error;
  if (image == nullptr) return kInvalidValue;
  if (oldness() == 2) return kNoBinary;
  *module = reinterpret_cast<CUmodule>(&the_module);
  return 0;
}

int cuModuleUnload(CUmodule module) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  return module == reinterpret_cast<CUmodule>(&the_module) ? 0 : kInvalidHandle;
}

int cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  if (module != reinterpret_cast<CUmodule>(&the_module)) return kInvalidHandle;
  if (std::strcmp(name, sennit::cuda::kKernelName) != 0) return kNotFound;
  *function = reinterpret_cast<CUfunction>(&the_function);
  return 0;
}

int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned, CUstream handle,
                   void** parameters, void**) {
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter_stream(handle, &stream)) return error;
  if (function != reinterpret_cast<CUfunction>(&the_function) || stream->gpu != current())
    return kInvalidHandle;
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != sennit::cuda::kThreads ||
      block_y != 1 || block_z != 1 || parameters == nullptr)
    return kInvalidValue;
  uint64_t arguments[3];  // the mailbox, the board, the launch's number
  for (int i = 0; i < 3; i++) std::memcpy(&arguments[i], parameters[i], sizeof arguments[i]);
  static std::atomic<uint64_t> launches{0};
  static const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  Point end;
  {
    const std::lock_guard lock(stream->gpu->lock);
    end = stream->gpu->push(*stream, [=, gpu = stream->gpu] {
      const Dice dice(~launches.fetch_add(1, std::memory_order_relaxed));
      run_worker(*gpu, arguments[0], arguments[1], arguments[2], dice);
    });
  }
  if (blocking == nullptr || std::atoi(blocking) == 0) return 0;
  end.wait();
  return device_error();
}
