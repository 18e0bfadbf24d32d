// api_memory.cpp: memory that communicators know: allocated, registered, or a window.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>

#include "base/mutex.hpp"
#include "nccl/device_memory.hpp"
#include "nccl/exported.hpp"
#include "nccl/report.hpp"

using namespace sennit::nccl;  // NOLINT: the functions below are the library's

namespace {

// What ncclMemAlloc gave: it has no communicator, and ncclMemFree no size.
struct Allocations {
  sennit::Mutex mutex;
  std::map<void*, size_t> bytes SENNIT_GUARDED_BY(mutex);
};
Allocations& allocations() {
  static auto* const all = new Allocations;
  return *all;
}

Outcome check_range(const void* memory, size_t bytes, const void* result) {
  if (!memory || bytes == 0 || !result)
    return {ncclInvalidArgument, "the memory, its size or the place for the handle is 0"};
  return {};
}

template <typename F>
ncclResult_t with(ncclComm_t comm, F&& f) {
  return guarded([&]() -> Outcome {
    Outcome why;
    const std::shared_ptr<CommunicatorState> state = state_of(comm, &why);
    return state ? f(*state) : why;
  });
}

// A registration is a promise to use memory often, and programs register whole pools. Here it is
// only remembered: to make memory readable for others of this host (sennit_mem_register) replaces
// its pages, which a program that never asked for it must not meet. Nor does another rank reach
// through a window: one-sided calls are refused.
ncclResult_t add(ncclComm_t comm, const Registration& registration, void** handle) {
  return with(comm, [&](CommunicatorState& state) -> Outcome {
    Outcome off = check_range(registration.memory, registration.bytes, handle);
    if (off.ok()) *handle = state.add_registration(registration);
    return off;
  });
}

ncclResult_t remove(ncclComm_t comm, const void* handle, bool window) {
  return with(comm, [&](CommunicatorState& state) -> Outcome {
    if (state.remove_registration(handle, window)) return {};
    return {ncclInvalidArgument, std::string(window ? "the window" : "the handle") +
                                     " is none of this communicator's, or was deregistered before"};
  });
}

}  // namespace

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return guarded([&]() -> Outcome {
    if (!memory) return {ncclInvalidArgument, "ptr is NULL"};
    *memory = nullptr;
    if (bytes == 0) return {};
    if (Outcome off = allocate_on_device(bytes, memory); !off.ok() || *memory) return off;
    void* const got =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED)
      return {ncclSystemError, "ncclMemAlloc: no memory for " + std::to_string(bytes) + " bytes"};
    Allocations& all = allocations();
    const sennit::MutexLock lock(all.mutex);
    all.bytes[got] = bytes;
    *memory = got;
    return {};
  });
}

ncclResult_t ncclMemFree(void* memory) {
  return guarded([&]() -> Outcome {
    if (!memory) return {};
    Allocations& all = allocations();
    {
      const sennit::MutexLock lock(all.mutex);
      if (const auto known = all.bytes.find(memory); known != all.bytes.end()) {
        munmap(memory, known->second);
        all.bytes.erase(known);
        return {};
      }
    }
    // Without the lock: it may wait for kernels.
    if (free_on_device(memory)) return {};
    return {ncclInvalidArgument, "ncclMemFree: this memory did not come from ncclMemAlloc"};
  });
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  return add(comm, {memory, bytes, false}, handle);
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  return remove(comm, handle, false);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                    ncclWindow_t* window, int) {
  void* handle = nullptr;
  const ncclResult_t result = add(comm, {memory, bytes, true}, window ? &handle : nullptr);
  if (result == ncclSuccess) *window = static_cast<ncclWindow_t>(handle);
  return result;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return remove(comm, window, true);
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** memory) {
  return with(comm, [&](CommunicatorState& state) -> Outcome {
    const std::optional<Registration> known = state.find_registration(window);
    if (!known || !known->window || !memory)
      return {ncclInvalidArgument, "the window is none of this communicator's, or outUserPtr NULL"};
    *memory = known->memory;
    return {};
  });
}
