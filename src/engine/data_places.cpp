// data_places.cpp: see engine/data_places.hpp.
#include "engine/data_places.hpp"

namespace sennit {
namespace {

constexpr size_t kSlotAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kSlotAlignment - 1) & ~(kSlotAlignment - 1); }

// Segments that touch become one.
size_t append(std::vector<Segment>* segments, std::byte* data, size_t bytes) {
  if (!segments->empty() && segments->back().data + segments->back().bytes == data)
    segments->back().bytes += bytes;
  else
    segments->push_back({data, bytes});
  return bytes;
}

// A unit's number among those of all blocks; relays of all-to-all have more than fit in 64 bits.
unsigned __int128 global(uint64_t block, uint64_t unit) {
  return static_cast<unsigned __int128>(block) * kUnits + unit;
}

}  // namespace

const Layout& DataPlaces::layout_of(Buffer buffer) const {
  return buffer == Buffer::input    ? buffers.input_layout
         : buffer == Buffer::output ? buffers.output_layout
                                    : buffers.wire_layout;
}

size_t DataPlaces::lay_out(SlotPlaces& slots) const {
  size_t total = 0;
  for (size_t s = 0; s < program_.slots.size(); s++) {
    const Slot& slot = program_.slots[s];
    slots.offset[s] = total;
    uint64_t elements = 0;
    for (uint32_t r = 0; r < slot.ranges; r++)
      elements += buffers.wire_layout.length(program_.ranges[slot.first_range + r], slots.chunk);
    total += aligned(elements * element_bytes_);
  }
  return total;
}

void DataPlaces::use_arena(SlotPlaces& slots) const {
  for (size_t s = 0; s < program_.slots.size(); s++) slots.base[s] = slots.home(s);
}

size_t DataPlaces::locate(const SlotPlaces& slots, const Operand& operand,
                          std::vector<Segment>* segments) const {
  if (operand.buffer == Buffer::slot) return locate_in_slot(slots, operand, segments);
  const Layout& layout = layout_of(operand.buffer);
  std::byte* const base =
      operand.buffer == Buffer::input ? const_cast<std::byte*>(buffers.input) : buffers.output;
  size_t bytes = 0;
  for (const Range& range : program_.ranges_of(operand))
    layout.for_each_piece(range, slots.chunk, [&](uint64_t first, uint64_t n) {
      bytes += append(segments, base + first * element_bytes_, n * element_bytes_);
    });
  return bytes;
}

// Finds each range inside the slot's ranges, which are packed in order. Ranges mostly come in that
// order too, so the search goes on where the last one was found, once around at most.
size_t DataPlaces::locate_in_slot(const SlotPlaces& slots, const Operand& operand,
                                  std::vector<Segment>* segments) const {
  const Slot& slot = program_.slots[operand.slot];
  const Layout& layout = buffers.wire_layout;
  size_t bytes = 0;
  uint64_t before = 0;  // elements of the slot's ranges before `at`
  uint32_t at = 0;
  for (const Range& range : program_.ranges_of(operand)) {
    const auto begin = global(range.block, range.begin);
    const auto end = global(range.block, range.end);
    for (bool wrapped = false;;) {
      if (at == slot.ranges) {
        SENNIT_CHECK(!wrapped);
        wrapped = true;
        at = 0;
        before = 0;
      }
      const Range& held = program_.ranges[slot.first_range + at];
      const auto held_begin = global(held.block, held.begin);
      if (begin >= held_begin && end <= global(held.block, held.end)) {
        const auto lead = static_cast<uint64_t>(begin - held_begin);
        const uint64_t skip =
            lead == 0 ? 0 : layout.length({held.block, held.begin, held.begin + lead}, slots.chunk);
        const uint64_t n = layout.length(range, slots.chunk);
        if (n > 0)
          bytes += append(segments, slots.base[operand.slot] + (before + skip) * element_bytes_,
                          n * element_bytes_);
        break;
      }
      before += layout.length(held, slots.chunk);
      at++;
    }
  }
  return bytes;
}

}  // namespace sennit
