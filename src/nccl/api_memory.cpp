// api_memory.cpp: memory that communicators know: allocated, registered, or a window.
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "base/mutex.hpp"
#include "nccl/device_memory.hpp"
#include "nccl/exported.hpp"
#include "nccl/report.hpp"

using namespace sennit::nccl;  // NOLINT: the functions below are the library's

// A window onto memory of this rank. No other rank reaches through it: one-sided calls are refused.
struct ncclWindow_vidmem {
  void* memory;
  size_t bytes;
};

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

// A registration is a promise to use memory often, and programs register whole pools. Here it is
// only remembered: to make memory readable for others of this host (sennit_mem_register) replaces
// its pages, which a program that never asked for it must not meet.
struct Registration {
  void* memory;
  size_t bytes;
};

Outcome check_range(const void* memory, size_t bytes, const void* result) {
  if (!memory || bytes == 0 || !result)
    return {ncclInvalidArgument, "the memory, its size or the place for the handle is 0"};
  return refuse_device_memory(&memory, 1);
}

template <typename F>
ncclResult_t with(ncclComm_t comm, F&& f) {
  return guarded([&]() -> Outcome {
    Outcome why;
    return state_of(comm, &why) ? f() : why;
  });
}

}  // namespace

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return guarded([&]() -> Outcome {
    if (!memory) return {ncclInvalidArgument, "ptr is NULL"};
    *memory = nullptr;
    if (bytes == 0) return {};
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
    const sennit::MutexLock lock(all.mutex);
    const auto known = all.bytes.find(memory);
    if (known == all.bytes.end())
      return {ncclInvalidArgument, "ncclMemFree: this memory did not come from ncclMemAlloc"};
    munmap(memory, known->second);
    all.bytes.erase(known);
    return {};
  });
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  return with(comm, [&]() -> Outcome {
    if (Outcome off = check_range(memory, bytes, handle); !off.ok()) return off;
    *handle = new Registration{memory, bytes};
    return {};
  });
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  return with(comm, [&]() -> Outcome {
    if (!handle) return {ncclInvalidArgument, "the handle is NULL"};
    delete static_cast<Registration*>(handle);
    return {};
  });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                    ncclWindow_t* window, int) {
  return with(comm, [&]() -> Outcome {
    if (Outcome off = check_range(memory, bytes, window); !off.ok()) return off;
    *window = new ncclWindow_vidmem{memory, bytes};
    return {};
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return with(comm, [&]() -> Outcome {
    if (!window) return {ncclInvalidArgument, "the window is NULL"};
    delete window;
    return {};
  });
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** memory) {
  return with(comm, [&]() -> Outcome {
    if (!window || !memory) return {ncclInvalidArgument, "the window or outUserPtr is NULL"};
    *memory = window->memory;
    return {};
  });
}
