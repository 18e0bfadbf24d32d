// layout.hpp: from units to bytes: which elements of the user's memory a Range of a pipeline chunk
// means.
//
// Block b has elements(b) elements at offset(b) (elements from the buffer's start). Chunk c of C is
// the slice [n*c/C, n*(c+1)/C) of every block, and units [u, v) of a block are elements
// [floor(len*u/kUnits), floor(len*v/kUnits)) of that slice (schedule/program.hpp). Pure arithmetic;
// O(blocks in the range).
#pragma once

#include <cstdint>
#include <vector>

#include "base/arithmetic.hpp"
#include "schedule/program.hpp"

namespace sennit {

// Slice `index` of `count` of every block.
struct Chunk {
  uint32_t index = 0;
  uint32_t count = 1;
};

// How the blocks of one buffer lie in memory. `counts` and `offsets` are by block and may be null:
// then every block has `count` elements, and block b lies at place(b) * count, where place is
// `places[b]`, or 0 when null.
struct Layout {
  uint64_t count = 0;
  const uint64_t* counts = nullptr;
  const uint64_t* offsets = nullptr;
  const int32_t* places = nullptr;
  uint64_t first_counted = 0;  // the block that counts[0] is of; those before it are not used

  uint64_t elements(uint64_t block) const { return counts ? counts[block - first_counted] : count; }
  uint64_t offset(uint64_t block) const {
    if (offsets) return offsets[block];
    return places ? static_cast<uint64_t>(places[block]) * count : 0;
  }
  static uint64_t slice_begin(uint64_t elements, Chunk chunk, uint32_t ahead = 0) {
    return scaled(elements, chunk.index + ahead, chunk.count);
  }
  uint64_t slice_length(uint64_t block, Chunk chunk) const {
    const uint64_t n = elements(block);
    return slice_begin(n, chunk, 1) - slice_begin(n, chunk);
  }

  // Calls f(first element in memory, elements) for every block that the range touches; no empty
  // pieces.
  template <typename F>
  void for_each_piece(const Range& range, Chunk chunk, F&& f) const {
    uint64_t begin = range.begin, end = range.end;
    for (uint64_t block = range.block; begin < end; block++) {
      const uint64_t n = elements(block);
      const uint64_t first = slice_begin(n, chunk);
      const uint64_t length = slice_begin(n, chunk, 1) - first;
      const uint64_t from = begin == 0 ? 0 : scaled(length, begin, kUnits);
      const uint64_t to = end >= kUnits ? length : scaled(length, end, kUnits);
      if (to > from) f(offset(block) + first + from, to - from);
      begin = 0;
      end = end > kUnits ? end - kUnits : 0;
    }
  }

  // Elements of the range in this chunk. O(1) where blocks are equal.
  uint64_t length(const Range& range, Chunk chunk) const {
    if (!counts && range.end > 2 * kUnits) {
      const uint64_t len = slice_length(range.block, chunk);
      const uint64_t last = range.end / kUnits, rest = range.end % kUnits;
      return len * last + scaled(len, rest, kUnits) - scaled(len, range.begin, kUnits);
    }
    uint64_t sum = 0;
    for_each_piece(range, chunk, [&](uint64_t, uint64_t n) { sum += n; });
    return sum;
  }
  // The same of all ranges of an operand.
  uint64_t length(const Program& program, const Operand& operand, Chunk chunk) const {
    uint64_t sum = 0;
    for (const Range& range : program.ranges_of(operand)) sum += length(range, chunk);
    return sum;
  }
};

// Bytes that the reductions and copies of a program read, of the message in one chunk.
uint64_t read_bytes(const Program& program, const Layout& layout, uint64_t element_bytes);

}  // namespace sennit
