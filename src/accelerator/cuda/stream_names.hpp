// stream_names.hpp: what tells streams apart, of which some have several handles or share one.
#pragma once

#include <atomic>
#include <cstdint>

namespace sennit::cuda {

// Handles that are numbers: of the default stream, which null means as well, and of the calling
// thread's own stream.
inline constexpr uintptr_t kLegacyStream = 1, kPerThreadStream = 2;

// Whether it is the default stream, or that of the calling thread.
inline bool is_legacy(const void* stream) {
  return reinterpret_cast<uintptr_t>(stream) <= kLegacyStream;
}
inline bool is_per_thread(const void* stream) {
  return reinterpret_cast<uintptr_t>(stream) == kPerThreadStream;
}

// The one name of the stream that the calling thread means by this handle. No two threads of the
// process ever have the same one for their own: it is odd, and other handles are addresses.
inline const void* name_of(const void* stream) {
  if (is_legacy(stream)) return nullptr;
  if (!is_per_thread(stream)) return stream;
  static std::atomic<uintptr_t> threads{0};
  static thread_local const uintptr_t number = ++threads;
  return reinterpret_cast<const void*>(2 * number + 1);
}
inline bool is_thread_name(const void* name) { return reinterpret_cast<uintptr_t>(name) % 2 != 0; }

}  // namespace sennit::cuda
