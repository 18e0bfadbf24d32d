// connections.cpp: see record/connections.hpp.
#include "record/connections.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/arithmetic.hpp"

namespace sennit {

ConnectionCounters difference(const ConnectionCounters& later, const ConnectionCounters& earlier) {
  const auto more = [](uint64_t a, uint64_t b) { return a - std::min(a, b); };
  return {later.when_ns,
          more(later.busy_us, earlier.busy_us),
          more(later.receiver_limited_us, earlier.receiver_limited_us),
          more(later.buffer_limited_us, earlier.buffer_limited_us),
          more(later.segments, earlier.segments),
          more(later.segments_again, earlier.segments_again),
          more(later.bytes, earlier.bytes),
          more(later.bytes_again, earlier.bytes_again)};
}

uint64_t ConnectionRecord::expected_check() const {
  constexpr size_t kWords = sizeof(ConnectionRecord) / sizeof(uint64_t);
  const auto words = std::bit_cast<std::array<uint64_t, kWords>>(*this);
  uint64_t hash = 0;
  for (size_t i = 0; i + 1 < kWords; i++) hash = mix(hash, words[i]);  // the last is the check
  return hash;
}

}  // namespace sennit
