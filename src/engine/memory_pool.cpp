// memory_pool.cpp: see engine/memory_pool.hpp.
#include "engine/memory_pool.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/core.h>

#include "base/process/memory_left.hpp"

namespace sennit {
namespace {

constexpr size_t kAlignment = 64;
// A block serves for scratch of down to a quarter of its size.
constexpr size_t kMostWaste = 4;

// Whether all pages of the range are mapped: msync() moves nothing here, but fails where they are
// not.
bool is_mapped(std::byte* begin, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* const first_page = begin - reinterpret_cast<uintptr_t>(begin) % page;
  return msync(first_page, static_cast<size_t>(begin + bytes - first_page), MS_ASYNC) == 0;
}

}  // namespace

MemoryPool::~MemoryPool() {
  for (void* memory : plain_) std::free(memory);
}

Result<void*> MemoryPool::allocate(size_t bytes) {
  for (const auto& transport : routes_.transports())
    if (void* memory = transport->allocate(bytes)) return memory;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max(bytes, kAlignment)) != 0)
    return no_memory(bytes);
  const Status taken = take_memory(bytes, [memory](size_t offset, size_t n) {
    std::memset(static_cast<std::byte*>(memory) + offset, 0, n);
    return true;
  });
  if (!taken.ok()) {
    std::free(memory);
    return taken;
  }
  plain_.push_back(memory);
  return memory;
}

bool MemoryPool::free(void* memory) {
  const bool shared =
      std::ranges::any_of(routes_.transports(), [&](const auto& t) { return t->free(memory); });
  if (!shared) {
    const auto found = std::find(plain_.begin(), plain_.end(), memory);
    if (found == plain_.end()) return false;
    plain_.erase(found);
    std::free(memory);
  }
  registered_.erase(static_cast<std::byte*>(memory));
  return true;
}

Status MemoryPool::register_range(void* memory, size_t bytes) {
  auto* const begin = static_cast<std::byte*>(memory);
  if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(memory))
    return invalid(fmt::format("{} bytes at {}: beyond the address space", bytes, memory));
  bytes = std::max<size_t>(bytes, 1);
  if (const auto same = registered_.find(begin);
      same != registered_.end() && same->second.bytes == bytes) {
    same->second.times++;
    return {};
  }
  SENNIT_RETURN_IF_ERROR(check_free_of_others(begin, bytes));
  if (!is_mapped(begin, bytes))
    return invalid(
        fmt::format("{} bytes at {}: no memory is mapped there, or not everywhere", bytes, memory));
  for (const auto& transport : routes_.transports())
    SENNIT_RETURN_IF_ERROR(transport->register_memory(memory, bytes));
  registered_.emplace(begin, Registered{bytes, 1});
  return {};
}

Status MemoryPool::check_free_of_others(std::byte* begin, size_t bytes) const {
  // the last one that begins before the range's end is the only that may overlap
  const auto behind = registered_.lower_bound(begin + bytes);
  if (behind == registered_.begin()) return {};
  const auto& [other, range] = *std::prev(behind);
  if (other + range.bytes <= begin) return {};
  return invalid(fmt::format(
      "{} bytes at {} overlap {} that are registered at {}: deregister those, and do it before "
      "memory is freed",
      bytes, static_cast<void*>(begin), range.bytes, static_cast<void*>(other)));
}

Status MemoryPool::deregister_range(void* memory) {
  const auto found = registered_.find(static_cast<std::byte*>(memory));
  if (found == registered_.end())
    return invalid(fmt::format("no memory is registered at {}", memory));
  if (found->second.times > 1) {
    found->second.times--;
    return {};
  }
  for (const auto& transport : routes_.transports())
    SENNIT_RETURN_IF_ERROR(transport->deregister_memory(memory));
  registered_.erase(found);
  return {};
}

Result<MemoryPool::Scratch> MemoryPool::take_scratch(size_t bytes) {
  auto best = scratch_.end();
  for (auto it = scratch_.begin(); it != scratch_.end(); ++it)
    if (it->bytes >= bytes && it->bytes <= kMostWaste * bytes &&
        (best == scratch_.end() || it->bytes < best->bytes))
      best = it;
  if (best != scratch_.end()) {
    const Scratch found = *best;
    scratch_.erase(best);
    return found;
  }
  const Result<void*> fresh = allocate(bytes);
  if (!fresh) return fresh.status();
  return Scratch{static_cast<std::byte*>(*fresh), bytes};
}

void MemoryPool::give_back_scratch(const Scratch& scratch) {
  if (scratch.memory) scratch_.push_back(scratch);
}

void MemoryPool::free_scratch() {
  for (const Scratch& scratch : scratch_) this->free(scratch.memory);
  scratch_.clear();
}

}  // namespace sennit
