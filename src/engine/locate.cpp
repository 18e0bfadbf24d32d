// locate.cpp: where a step's data lies in memory: the user's buffers by their layouts, the slots of
// a lane packed in its arena. Appends to the caller's segments, so that nothing is allocated once
// they have grown. Cost: O(ranges of the operand), and for a part of a slot the ranges of the slot
// it walks over.
#include "engine/engine.hpp"
#include "engine/execution.hpp"

namespace sennit {

const Layout& Execution::layout_of(Buffer buffer) const {
  return buffer == Buffer::input    ? buffers_.input_layout
         : buffer == Buffer::output ? buffers_.output_layout
                                    : buffers_.wire_layout;
}

Status Execution::lay_out_slots(Lane& lane) {
  size_t total = 0;
  for (size_t s = 0; s < program_.slots.size(); s++) {
    const Slot& slot = program_.slots[s];
    lane.slot_offset[s] = total;
    uint64_t elements = 0;
    for (uint32_t r = 0; r < slot.ranges; r++)
      elements += buffers_.wire_layout.length(program_.ranges[slot.first_range + r], lane.chunk);
    total += (elements * element_bytes_ + 63) & ~size_t{63};
  }
  if (total > lane.arena_bytes) {
    engine_.free_scratch(lane.arena, lane.arena_bytes);
    lane.arena = nullptr;
    lane.arena_bytes = 0;
    const Result<std::byte*> scratch = engine_.allocate_scratch(total);
    if (!scratch)
      return {scratch.status().kind(),
              scratch.status().text() + ", in scratch: use smaller chunks (SENNIT_CHUNK_BYTES)"};
    lane.arena = *scratch;
    lane.arena_bytes = total;
  }
  for (size_t s = 0; s < program_.slots.size(); s++)
    lane.slot_base[s] = lane.arena + lane.slot_offset[s];
  return {};
}

size_t Execution::locate(const Lane& lane, const Operand& operand,
                         std::vector<Segment>* segments) const {
  size_t bytes = 0;
  const auto add = [&](std::byte* data, size_t n) {
    bytes += n;
    if (!segments->empty() && segments->back().data + segments->back().bytes == data)
      segments->back().bytes += n;
    else
      segments->push_back({data, n});
  };
  if (operand.buffer != Buffer::slot) {
    const Layout& layout = layout_of(operand.buffer);
    std::byte* base =
        operand.buffer == Buffer::input ? const_cast<std::byte*>(buffers_.input) : buffers_.output;
    for (const Range& range : program_.ranges_of(operand))
      layout.for_each_piece(range, lane.chunk, [&](uint64_t first, uint64_t n) {
        add(base + first * element_bytes_, n * element_bytes_);
      });
    return bytes;
  }
  // A part of a slot: find each range inside the slot's ranges, which are packed in order.
  const Slot& slot = program_.slots[operand.slot];
  const Layout& layout = buffers_.wire_layout;
  uint64_t before = 0;
  uint32_t at = 0;
  const auto global = [](uint64_t block, uint64_t unit) {
    return static_cast<unsigned __int128>(block) * kUnits + unit;
  };
  for (const Range& range : program_.ranges_of(operand)) {
    for (bool wrapped = false;;) {
      if (at == slot.ranges) {
        SENNIT_CHECK(!wrapped);
        wrapped = true, at = 0, before = 0;
      }
      const Range& held = program_.ranges[slot.first_range + at];
      const auto begin = global(range.block, range.begin), end = global(range.block, range.end);
      const auto held_begin = global(held.block, held.begin);
      if (begin >= held_begin && end <= global(held.block, held.end)) {
        const auto lead = static_cast<uint64_t>(begin - held_begin);
        const uint64_t skip =
            lead == 0 ? 0 : layout.length({held.block, held.begin, held.begin + lead}, lane.chunk);
        const uint64_t n = layout.length(range, lane.chunk);
        if (n > 0)
          add(lane.slot_base[operand.slot] + (before + skip) * element_bytes_, n * element_bytes_);
        break;
      }
      before += layout.length(held, lane.chunk);
      at++;
    }
  }
  return bytes;
}

}  // namespace sennit
