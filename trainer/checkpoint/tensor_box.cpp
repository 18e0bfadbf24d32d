// tensor_box.cpp: see trainer/checkpoint/tensor_box.hpp.
#include "trainer/checkpoint/tensor_box.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "trainer/base/checksum.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace sennit::trainer {

int64_t Box::elements() const {
  int64_t product = 1;
  for (const int64_t length : extent) product *= length;
  return product;
}

std::string box_text(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.offset.size(); d++)
    text += fmt::format("{}{}:{}", d ? ", " : "", box.offset[d], box.offset[d] + box.extent[d]);
  return text + "]";
}

std::optional<Box> meet(const Box& a, const Box& b) {
  Box part;
  for (size_t d = 0; d < a.offset.size(); d++) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (end <= begin) return std::nullopt;
    part.offset.push_back(begin);
    part.extent.push_back(end - begin);
  }
  return part;
}

Sizes dense_strides(const Sizes& extent) {
  Sizes stride(extent.size(), 1);
  for (size_t d = extent.size(); d-- > 1;) stride[d - 1] = stride[d] * extent[d];
  return stride;
}

void copy_part(const Box& part, const Placed& to, const Placed& from, size_t element_bytes) {
  size_t dimensions = part.extent.size();
  int64_t to_at = 0, from_at = 0;
  for (size_t d = 0; d < dimensions; d++) {
    to_at += (part.offset[d] - to.box.offset[d]) * to.stride[d];
    from_at += (part.offset[d] - from.box.offset[d]) * from.stride[d];
  }
  auto* write = static_cast<char*>(to.data) + to_at * static_cast<int64_t>(element_bytes);
  const auto* read =
      static_cast<const char*>(from.data) + from_at * static_cast<int64_t>(element_bytes);
  // The innermost dimensions that are dense on both sides are one run.
  int64_t run = 1;
  while (dimensions > 0 && to.stride[dimensions - 1] == run && from.stride[dimensions - 1] == run)
    run *= part.extent[--dimensions];
  const size_t run_bytes = static_cast<size_t>(run) * element_bytes;
  Sizes at(dimensions, 0);
  for (;;) {
    std::memcpy(write, read, run_bytes);
    size_t d = dimensions;
    while (d > 0) {
      d--;
      const auto step = static_cast<int64_t>(element_bytes);
      write += to.stride[d] * step;
      read += from.stride[d] * step;
      if (++at[d] < part.extent[d]) break;
      write -= to.stride[d] * step * part.extent[d];
      read -= from.stride[d] * step * part.extent[d];
      at[d] = 0;
      if (d == 0) return;
    }
    if (dimensions == 0) return;
  }
}

std::optional<std::string> tiling_fault(const Sizes& shape, std::vector<Box> boxes) {
  int64_t elements = 0;
  std::erase_if(boxes, [](const Box& box) { return box.elements() == 0; });
  const auto first = [](const Box& box) { return box.offset.empty() ? 0 : box.offset[0]; };
  std::sort(boxes.begin(), boxes.end(),
            [](const Box& a, const Box& b) { return a.offset < b.offset; });
  std::vector<const Box*> open;  // those that reach to where the sweep is
  for (const Box& box : boxes) {
    std::erase_if(open, [&](const Box* earlier) {
      return !earlier->offset.empty() && earlier->offset[0] + earlier->extent[0] <= first(box);
    });
    for (const Box* earlier : open)
      if (meet(*earlier, box))
        return fmt::format("{} and {} overlap", box_text(*earlier), box_text(box));
    open.push_back(&box);
    elements += box.elements();
  }
  const int64_t expected = elements_of(shape);
  if (elements != expected) return fmt::format("{} of {} elements are there", elements, expected);
  return std::nullopt;
}

std::optional<Box> replica_share(const TensorPiece& piece) {
  Box box{piece.offset, piece.extent};
  if (box.elements() == 0) return std::nullopt;
  if (piece.replicas <= 1) return box;
  for (size_t d = 0; d < box.extent.size(); d++) {
    if (box.extent[d] < piece.replicas) {
      if (box.extent[d] > 1) break;  // a cut further in would be many short runs
      continue;
    }
    const int64_t begin = box.extent[d] * piece.replica / piece.replicas;
    const int64_t end = box.extent[d] * (piece.replica + 1) / piece.replicas;
    box.offset[d] += begin;
    box.extent[d] = end - begin;
    return box;
  }
  const uint64_t owner =
      checksum_of(piece.name.data(), piece.name.size()) % static_cast<uint64_t>(piece.replicas);
  if (owner != static_cast<uint64_t>(piece.replica)) return std::nullopt;
  return box;
}

std::optional<std::string> piece_fault(const TensorPiece& piece) {
  const size_t dimensions = piece.shape.size();
  if (piece.name.empty()) return "a tensor without a name";
  if (elements_of(piece.shape) < 0) return fmt::format("{}: no shape: {}", piece.name, piece.shape);
  if (piece.offset.size() != dimensions || piece.extent.size() != dimensions ||
      (!piece.stride.empty() && piece.stride.size() != dimensions))
    return fmt::format("{}: a box of other dimensions than its tensor's", piece.name);
  for (size_t d = 0; d < dimensions; d++)
    if (piece.offset[d] < 0 || piece.extent[d] < 0 ||
        piece.offset[d] > piece.shape[d] - piece.extent[d])
      return fmt::format("{}: the box {} reaches out of {}", piece.name,
                         box_text({piece.offset, piece.extent}), piece.shape);
  if (piece.replicas < 1 || piece.replica < 0 || piece.replica >= piece.replicas)
    return fmt::format("{}: replica {} of {}", piece.name, piece.replica, piece.replicas);
  return std::nullopt;
}

std::vector<TensorPiece> pieces_of_range(const TensorPiece& box, int64_t first, int64_t count,
                                         void* data) {
  std::vector<TensorPiece> pieces;
  const Sizes stride = dense_strides(box.extent);
  auto* at = static_cast<char*>(data);
  while (count > 0) {
    // The largest box that begins at `first`: whole in every dimension after d, and a run in d.
    TensorPiece piece = box;
    piece.stride.clear();
    piece.data = at;
    size_t d = 0;
    while (d + 1 < stride.size() && (first % stride[d] != 0 || count < stride[d])) d++;
    int64_t rest = first, taken = 1;
    for (size_t k = 0; k < stride.size(); k++) {
      const int64_t index = rest / stride[k];
      rest %= stride[k];
      if (k < d) {
        piece.offset[k] += index;
        piece.extent[k] = 1;
      } else if (k == d) {
        piece.offset[k] += index;
        piece.extent[k] = std::min(count / stride[k], box.extent[k] - index);
        taken = piece.extent[k] * stride[k];
      }
    }
    first += taken;
    count -= taken;
    at += taken * static_cast<int64_t>(bytes_of(box.type));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace sennit::trainer
