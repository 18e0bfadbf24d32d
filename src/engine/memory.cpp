// memory.cpp: memory that the engine hands out, to users and as scratch for executions, and memory
// of users' own that they register. Exposable to peers where a transport offers that, else plain.
// See engine/engine.hpp.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "base/memory_left.hpp"
#include "engine/engine.hpp"

namespace sennit {

Result<void*> Engine::allocate(size_t bytes) {
  for (const auto& transport : transports_)
    if (void* memory = transport->allocate(bytes)) return memory;
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, std::max<size_t>(bytes, 64)) != 0) return no_memory(bytes);
  const Status taken = take_memory(bytes, [memory](size_t offset, size_t n) {
    std::memset(static_cast<std::byte*>(memory) + offset, 0, n);
    return true;
  });
  if (!taken.ok()) {
    std::free(memory);
    return taken;
  }
  plain_user_.push_back(memory);
  return memory;
}

Result<void*> Engine::allocate_user(size_t bytes) {
  const auto guard = lock();
  return allocate(bytes);
}

bool Engine::free_user(void* memory) {
  const auto guard = lock();
  const bool shared =
      std::ranges::any_of(transports_, [&](const auto& t) { return t->free(memory); });
  if (!shared) {
    const auto found = std::find(plain_user_.begin(), plain_user_.end(), memory);
    if (found == plain_user_.end()) return false;
    plain_user_.erase(found);
    std::free(memory);
  }
  registered_.erase(static_cast<std::byte*>(memory));
  return true;
}

Status Engine::register_user(void* memory, size_t bytes) {
  auto* const begin = static_cast<std::byte*>(memory);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (bytes > UINTPTR_MAX - address)
    return invalid(fmt::format("{} bytes at {}: beyond the address space", bytes, memory));
  bytes = std::max<size_t>(bytes, 1);
  const auto guard = lock();
  // the one before it is the only that may overlap
  const auto last = registered_.lower_bound(begin + bytes);
  if (last != registered_.begin()) {
    auto& [other, range] = *std::prev(last);
    if (other == begin && range.bytes == bytes) {
      range.times++;
      return {};
    }
    if (other + range.bytes > begin)
      return invalid(fmt::format(
          "{} bytes at {} overlap {} that are registered at {}: deregister those, and do it before "
          "memory is freed",
          bytes, memory, range.bytes, static_cast<void*>(other)));
  }
  // msync() moves nothing here; it tells whether all pages are mapped.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* const first_page = begin - address % page;
  if (msync(first_page, static_cast<size_t>(begin + bytes - first_page), MS_ASYNC) != 0)
    return invalid(
        fmt::format("{} bytes at {}: no memory is mapped there, or not everywhere", bytes, memory));
  for (const auto& transport : transports_)
    SENNIT_RETURN_IF_ERROR(transport->register_memory(memory, bytes));
  registered_.emplace(begin, Registered{bytes, 1});
  return {};
}

Status Engine::deregister_user(void* memory) {
  const auto guard = lock();
  const auto found = registered_.find(static_cast<std::byte*>(memory));
  if (found == registered_.end())
    return invalid(fmt::format("no memory is registered at {}", memory));
  if (found->second.times > 1) {
    found->second.times--;
    return {};
  }
  for (const auto& transport : transports_)
    SENNIT_RETURN_IF_ERROR(transport->deregister_memory(memory));
  registered_.erase(found);
  return {};
}

// Scratch is kept for the next call: fresh pages cost more than the reduction that fills them.
Result<std::byte*> Engine::allocate_scratch(size_t bytes) {
  auto best = scratch_pool_.end();
  for (auto it = scratch_pool_.begin(); it != scratch_pool_.end(); ++it)
    if (it->bytes >= bytes && it->bytes <= 4 * bytes &&
        (best == scratch_pool_.end() || it->bytes < best->bytes))
      best = it;
  if (best != scratch_pool_.end()) {
    std::byte* memory = best->memory;
    scratch_pool_.erase(best);
    return memory;
  }
  const Result<void*> fresh = allocate(bytes);
  if (!fresh) return fresh.status();
  return static_cast<std::byte*>(*fresh);
}

void Engine::free_scratch(std::byte* memory, size_t bytes) {
  if (memory) scratch_pool_.push_back({memory, bytes});
}

}  // namespace sennit
