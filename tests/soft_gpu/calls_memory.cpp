// calls_memory.cpp: the driver's functions of memory. Those that free host or device memory wait
// for the whole device and hold its lock meanwhile, as CUDA's were measured to do. So do those that
// map and unmap another process's memory, of which nobody has measured it.
#include <cstring>

#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/current.hpp"
#include "tests/soft_gpu/memory.hpp"

namespace soft_gpu {
namespace {

uintptr_t number(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

int allocate_on_device(Gpu& gpu, size_t bytes, bool shareable, CUdeviceptr* memory) {
  if (const int error = forbidden_while_capturing()) return error;
  count_allocation();
  uintptr_t made = 0;
  const std::lock_guard lock(gpu.lock);
  const int error = allocate_device(bytes, gpu.ordinal, shareable, &made);
  if (error == 0) *memory = made;
  return error;
}

// Pinned or managed memory, of the current device.
int allocate_on_host(RangeKind kind, size_t bytes, uintptr_t* memory) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  if (const int error = forbidden_while_capturing()) return error;
  count_allocation();
  const std::lock_guard lock(gpu->lock);
  return allocate_host(kind, bytes, gpu->ordinal, memory);
}

// Gives back the range that begins at `memory` and is of one of two kinds.
int give_back(uintptr_t memory, RangeKind kind, RangeKind other_kind, int error_if_none) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  if (const int error = forbidden_while_capturing()) return error;
  const Range range = range_at(memory);
  if (range.first != memory || (range.kind != kind && range.kind != other_kind))
    return error_if_none;
  gpu = gpus()[static_cast<size_t>(range.device)];
  const std::lock_guard lock(gpu->lock);
  gpu->drain();
  if (broken()) return kIllegalAddress;
  forget(range);
  return 0;
}

// A copy in a stream. Where one side is host memory that the device does not reach, CUDA copies
// through memory of its own, and the call returns when it has.
int copy(uintptr_t to, uintptr_t from, size_t bytes, CUstream handle, bool waits) {
  Gpu* gpu = nullptr;
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter(&gpu)) return error;
  if (const int error = find_stream_to_use(handle, &stream)) return error;
  if (bytes == 0) return 0;
  if (reach_for_copy(to, bytes) == nullptr || reach_for_copy(from, bytes) == nullptr)
    return kInvalidValue;
  waits =
      waits || range_at(to).kind == RangeKind::unknown || range_at(from).kind == RangeKind::unknown;
  Point end;
  {
    const std::lock_guard lock(stream->gpu->lock);
    if (waits && stream->gpu->capture_of(*stream)) return kCaptureUnsupported;
    end = stream->gpu->push(*stream, [=] {
      std::byte* const there = reach_for_copy(to, bytes);
      const std::byte* const here = reach_for_copy(from, bytes);
      if (there == nullptr || here == nullptr)
        return break_device("a copy of memory that was freed");
      std::memmove(there, here, bytes);
    });
  }
  if (waits) end.wait();
  return waits ? device_error() : 0;
}

// Returns before memory of the device is set, as CUDA does.
int set(uintptr_t memory, int value, size_t bytes, CUstream handle) {
  Gpu* gpu = nullptr;
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter(&gpu)) return error;
  if (const int error = find_stream_to_use(handle, &stream)) return error;
  if (bytes == 0) return 0;
  if (reach(memory, bytes) == nullptr) return kInvalidValue;
  const std::lock_guard lock(stream->gpu->lock);
  stream->gpu->push(*stream, [=] {
    std::byte* const there = reach(memory, bytes);
    if (there == nullptr) return break_device("memory is set that was freed");
    std::memset(there, value, bytes);
  });
  return 0;
}

template <typename T>
int answer(void* data, T value) {
  *static_cast<T*>(data) = value;
  return 0;
}

// One CUpointer_attribute of what is at `memory`. CUDA 13 says of unknown memory that it is
// neither, of device -2.
int pointer_attribute(void* data, int attribute, uintptr_t memory, const Range& range) {
  const bool known = range.kind != RangeKind::unknown;
  const bool on_device = range.kind == RangeKind::device || range.kind == RangeKind::managed;
  switch (attribute) {
    case 1:  // the context
      return answer(data, known ? gpus()[static_cast<size_t>(range.device)] : nullptr);
    case 2:  // what memory
      return answer(data, !known ? 0u : on_device ? 2u : 1u);
    case 3:  // where the device finds it
      return answer(data, known ? memory : 0);
    case 4:  // where the host finds it
      return answer(data, known && range.kind != RangeKind::device ? memory : 0);
    case 8:  // whether it is managed
      return answer(data, static_cast<unsigned>(range.kind == RangeKind::managed));
    case 9:
      return answer(data, range.device);
    case 11:  // the range's first address, and its size
      return answer(data, range.first);
    case 12:
      return answer(data, range.bytes);
    default:
      return kInvalidValue;
  }
}

}  // namespace
}  // namespace soft_gpu

using namespace soft_gpu;

int cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  return allocate_on_device(*gpu, bytes, true, memory);
}

int cuMemAllocAsync(CUdeviceptr* memory, size_t bytes, CUstream stream) {
  Gpu* gpu = nullptr;
  std::shared_ptr<StreamThread> found;
  if (const int error = enter(&gpu)) return error;
  if (const int error = find_stream_to_use(stream, &found)) return error;
  return allocate_on_device(*found->gpu, bytes, false, memory);
}

int cuMemAllocManaged(CUdeviceptr* memory, size_t bytes, unsigned) {
  uintptr_t made = 0;
  const int error = allocate_on_host(RangeKind::managed, bytes, &made);
  if (error == 0) *memory = made;
  return error;
}

int cuMemFree_v2(CUdeviceptr memory) {
  if (memory == 0) return enter();
  return give_back(memory, RangeKind::device, RangeKind::managed, kInvalidValue);
}

int cuMemFreeAsync(CUdeviceptr memory, CUstream handle) {
  Gpu* gpu = nullptr;
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter(&gpu)) return error;
  if (const int error = find_stream_to_use(handle, &stream)) return error;
  const Range range = range_at(memory);
  if (range.kind != RangeKind::device || range.first != memory) return kInvalidValue;
  const std::lock_guard lock(stream->gpu->lock);
  if (stream->gpu->capture_of(*stream)) return kCaptureUnsupported;
  stream->gpu->push(*stream, [range] { forget(range); });
  return 0;
}

int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  uintptr_t made = 0;
  const int error = allocate_on_host(RangeKind::pinned, bytes, &made);
  if (error == 0) *memory = reinterpret_cast<void*>(made);
  return error;
}

int cuMemFreeHost(void* memory) {
  return give_back(number(memory), RangeKind::pinned, RangeKind::pinned, kInvalidValue);
}

int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  if (const int error = forbidden_while_capturing()) return error;
  count_allocation();
  const std::lock_guard lock(gpu->lock);
  return register_host(number(memory), bytes, gpu->ordinal);
}

int cuMemHostUnregister(void* memory) {
  return give_back(number(memory), RangeKind::registered, RangeKind::registered, kNotRegistered);
}

int cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* memory, unsigned) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  const RangeKind kind = range_at(number(memory)).kind;
  if (kind == RangeKind::unknown || kind == RangeKind::device) return kInvalidValue;
  *address = number(memory);
  return 0;
}

int cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr memory) {
  if (const int error = enter()) return error;
  Shared shared{};
  if (const int error = share(memory, &shared)) return error;
  static_assert(sizeof shared <= sizeof *handle);
  *handle = {};
  std::memcpy(handle, &shared, sizeof shared);
  return 0;
}

int cuIpcOpenMemHandle_v2(CUdeviceptr* memory, CUipcMemHandle handle, unsigned flags) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  if (const int error = forbidden_while_capturing()) return error;
  if (flags != 1) return kInvalidValue;
  count_allocation();
  Shared shared{};
  std::memcpy(&shared, &handle, sizeof shared);
  const std::lock_guard lock(gpu->lock);
  gpu->drain();
  uintptr_t mapped = 0;
  const int error = map_shared(shared, gpu->ordinal, &mapped);
  if (error == 0) *memory = mapped;
  return error;
}

int cuIpcCloseMemHandle(CUdeviceptr memory) {
  Gpu* gpu = nullptr;
  if (const int error = enter(&gpu)) return error;
  const std::lock_guard lock(gpu->lock);
  gpu->drain();
  return unmap_shared(memory);
}

int cuPointerGetAttribute(void* data, int attribute, CUdeviceptr memory) {
  if (const int error = enter()) return error;
  const Range range = range_at(memory);
  // Alone among the two, this one fails for memory that it does not know.
  if (range.kind == RangeKind::unknown) return kInvalidValue;
  return pointer_attribute(data, attribute, memory, range);
}

int cuPointerGetAttributes(unsigned count, const int* attributes, void** data, CUdeviceptr memory) {
  if (const int error = enter()) return error;
  const Range range = range_at(memory);
  for (unsigned i = 0; i < count; i++)
    if (const int error = pointer_attribute(data[i], attributes[i], memory, range)) return error;
  return 0;
}

int cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(to, from, bytes, nullptr, true);
}
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(to, from, bytes, stream, false);
}
int cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy(to, number(from), bytes, nullptr, true);
}
int cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy(number(to), from, bytes, nullptr, true);
}
int cuMemsetD8_v2(CUdeviceptr memory, unsigned char value, size_t bytes) {
  return set(memory, value, bytes, nullptr);
}
int cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) {
  return set(memory, value, bytes, stream);
}
