// counted_memory.hpp: how much memory a piece of work takes, counted at operator new, which this
// header replaces for the whole program. Include it from one source file only.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace sennit_perf {

inline std::atomic<size_t> g_live_bytes{0}, g_peak_bytes{0};

// What the operators below are made of, for any thread. Memory counts by its usable size; where
// there is none, bad_alloc is thrown.
inline void* counted(void* memory) {
  if (!memory) throw std::bad_alloc();
  const size_t live = g_live_bytes += malloc_usable_size(memory);
  size_t peak = g_peak_bytes;
  while (live > peak && !g_peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}
// Inlined, compilers would see memory of operator new given to free(), and warn.
[[gnu::noinline]] inline void uncounted(void* memory) {
  if (memory) g_live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
inline void* counted_aligned(size_t bytes, std::align_val_t alignment) {
  const size_t a = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(a, (bytes + a - 1) / a * a));
}

// Counts from its construction on, over all threads, in bytes as malloc rounds them up. One at a
// time, since there is one peak for the whole program.
class MemoryCount {
 public:
  MemoryCount() : before_(g_live_bytes) { g_peak_bytes = before_; }
  size_t held_bytes() const { return std::max<size_t>(g_live_bytes, before_) - before_; }
  // at once
  size_t most_bytes() const { return std::max<size_t>(g_peak_bytes, before_) - before_; }

 private:
  const size_t before_;
};

}  // namespace sennit_perf

// In place of the standard library's, for all that is linked with the including file. The forms for
// arrays and nothrow call these by default.
void* operator new(size_t bytes) { return sennit_perf::counted(std::malloc(bytes ? bytes : 1)); }
void* operator new(size_t bytes, std::align_val_t a) {
  return sennit_perf::counted_aligned(bytes, a);
}
void operator delete(void* memory) noexcept { sennit_perf::uncounted(memory); }
void operator delete(void* memory, size_t) noexcept { sennit_perf::uncounted(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { sennit_perf::uncounted(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  sennit_perf::uncounted(memory);
}
