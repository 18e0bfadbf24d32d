// tensor_box.hpp: boxes of tensors: where two meet, what is copied between them, and whether some
// tile a whole.
//
// A box is an offset and an extent in each dimension. Nothing here reads a file or starts a thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.hpp"

namespace sennit::trainer {

// As many dimensions as its tensor; one with an extent of 0 has no element.
struct Box {
  Sizes offset, extent;
  int64_t elements() const;  // of a box within a tensor: never overflows
  bool operator==(const Box&) const = default;
};

// "[0:128, 32:64]"
std::string box_text(const Box& box);

// nothing where they have no element in common
std::optional<Box> meet(const Box& a, const Box& b);

// Elements of the dense row-major order of a box's own.
Sizes dense_strides(const Sizes& extent);

// Where a box of a tensor lies in memory.
struct Placed {
  Box box;
  Sizes stride;  // in elements
  void* data = nullptr;
};
// Copies the elements of `part`, which both hold.
void copy_part(const Box& part, const Placed& to, const Placed& from, size_t element_bytes);

// What is wrong with boxes that should tile a tensor of this shape exactly; nothing where they do.
// Sorted by the first dimension: usually near O(boxes).
std::optional<std::string> tiling_fault(const Sizes& shape, std::vector<Box> boxes);

// The part of a piece that its replica number writes: a run of the first dimension that is long
// enough for each replica to have some, or all of it by one replica (which: by name, so that all
// have some).
std::optional<Box> replica_share(const TensorPiece& piece);

// What is off with a piece itself (a number of dimensions, a box outside of its tensor), or
// nothing.
std::optional<std::string> piece_fault(const TensorPiece& piece);

}  // namespace sennit::trainer
