// engine_memory.cpp: memory that the engine hands out: to users, and scratch for executions. Exposable to
// peers where a transport offers that, else plain. See engine.hpp.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine.hpp"

namespace sennit {

void* Engine::allocate_user(size_t bytes) {
  const auto guard = lock();
  for (const auto& transport : transports_)
    if (void* memory = transport->allocate(bytes)) return memory;
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, std::max<size_t>(bytes, 64)) != 0) return nullptr;
  std::memset(memory, 0, bytes);
  plain_user_.push_back(memory);
  return memory;
}

bool Engine::free_user(void* memory) {
  const auto guard = lock();
  for (const auto& transport : transports_)
    if (transport->free(memory)) return true;
  const auto found = std::find(plain_user_.begin(), plain_user_.end(), memory);
  if (found == plain_user_.end()) return false;
  plain_user_.erase(found);
  std::free(memory);
  return true;
}

// Scratch is kept for the next call: fresh pages cost more than the reduction that fills them.
std::byte* Engine::allocate_scratch(size_t bytes) {
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
  for (const auto& transport : transports_)
    if (void* memory = transport->allocate(bytes)) return static_cast<std::byte*>(memory);
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, bytes) != 0) return nullptr;
  plain_user_.push_back(memory);
  return static_cast<std::byte*>(memory);
}

void Engine::free_scratch(std::byte* memory, size_t bytes) {
  if (memory) scratch_pool_.push_back({memory, bytes});
}

}  // namespace sennit
