// segments.hpp: walking over the segments of a message: as iovecs for readv and writev, or copying
// to and from one piece of memory. Cost: a few instructions per segment; nothing is allocated.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "transports/transport.hpp"

namespace sennit {

// A position in a list of segments.
class SegmentCursor {
 public:
  SegmentCursor() = default;
  explicit SegmentCursor(std::span<const Segment> segments) : segments_(segments) { skip_empty(); }

  bool done() const { return segments_.empty(); }

  // The next at most `count` pieces, at most `limit` bytes in all; returns how many there are.
  int fill(iovec* out, int count, size_t limit = SIZE_MAX) const {
    int used = 0;
    size_t offset = offset_;
    for (const Segment& segment : segments_) {
      if (used == count || limit == 0) break;
      const size_t bytes = std::min(segment.bytes - offset, limit);
      if (bytes > 0) {
        out[used++] = {segment.data + offset, bytes};
        limit -= bytes;
      }
      offset = 0;
    }
    return used;
  }

  // Moves on by `bytes`, which fill() has offered.
  void advance(size_t bytes) {
    while (bytes > 0) {
      const size_t step = std::min(bytes, segments_[0].bytes - offset_);
      offset_ += step;
      bytes -= step;
      skip_empty();
    }
  }

  // Copies up to `bytes` into the segments and moves on; returns how many fitted.
  size_t put(const std::byte* data, size_t bytes) {
    size_t copied = 0;
    while (copied < bytes && !done()) {
      const size_t step = std::min(bytes - copied, segments_[0].bytes - offset_);
      std::memcpy(segments_[0].data + offset_, data + copied, step);
      copied += step;
      offset_ += step;
      skip_empty();
    }
    return copied;
  }

  // Copies up to `bytes` out of the segments and moves on; returns how many there were.
  size_t get(std::byte* out, size_t bytes) {
    size_t copied = 0;
    while (copied < bytes && !done()) {
      const size_t step = std::min(bytes - copied, segments_[0].bytes - offset_);
      std::memcpy(out + copied, segments_[0].data + offset_, step);
      copied += step;
      offset_ += step;
      skip_empty();
    }
    return copied;
  }

 private:
  void skip_empty() {
    while (!segments_.empty() && offset_ == segments_[0].bytes) {
      segments_ = segments_.subspan(1);
      offset_ = 0;
    }
  }

  std::span<const Segment> segments_;
  size_t offset_ = 0;  // into the first
};

// Copies between two lists of segments of the same total size.
inline void copy_segments(std::span<const Segment> to, std::span<const Segment> from) {
  SegmentCursor target(to);
  for (const Segment& segment : from)
    if (segment.bytes > 0) target.put(segment.data, segment.bytes);
}

}  // namespace sennit
