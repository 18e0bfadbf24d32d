// device_memory.cpp: see pmpi/device_memory.hpp.
#include "pmpi/device_memory.hpp"

#include <dlfcn.h>

#include <cstdint>

#include "base/process/loaded_library.hpp"

namespace sennit::pmpi {
namespace {

// Of CUDA's driver API, whose numbers never change.
constexpr int kSuccess = 0, kMemoryType = 2, kIsManaged = 8;
constexpr unsigned kTypeDevice = 2;

LoadedLibrary g_driver("libcuda.so.1");

}  // namespace

void look_for_devices() { g_driver.find(); }

bool is_on_device(const void* memory) {
  void* const driver = memory ? g_driver.known() : nullptr;
  if (!driver) return false;
  using GetAttribute = int (*)(void* data, int attribute, unsigned long long address);
  static const auto get = reinterpret_cast<GetAttribute>(dlsym(driver, "cuPointerGetAttribute"));
  const auto address = reinterpret_cast<uintptr_t>(memory);
  unsigned type = 0, managed = 0;
  return get && get(&type, kMemoryType, address) == kSuccess && type == kTypeDevice &&
         (get(&managed, kIsManaged, address) != kSuccess || managed == 0);
}

}  // namespace sennit::pmpi
