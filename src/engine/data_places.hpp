// data_places.hpp: where the data of a program's steps lies in memory: the user's buffers by their
// layouts, and the slots of a chunk packed in an arena of scratch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "schedule/layout.hpp"
#include "schedule/program.hpp"
#include "transports/transport.hpp"

namespace sennit {

// Where the call's data lies. The vectors own what the layouts point at, so these are moved and
// never copied.
struct Buffers {
  Buffers() = default;
  Buffers(Buffers&&) = default;
  Buffers& operator=(Buffers&&) = default;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Layout input_layout, output_layout, wire_layout;
  std::vector<uint64_t> counts, input_counts, input_offsets, output_offsets;
  uint64_t divisor = 1;  // avg: by how many to divide
  // Of a device's memory, a sum of what is multiplied first: the factor, one element of the call's
  // type, and how many elements of the input. Of the host's it has been multiplied before.
  std::array<std::byte, 8> factor = {};
  // Where it is not null the factor lies here, in memory that the device reaches, and is what lies
  // here when the stream comes to the call.
  const std::byte* factor_in_stream = nullptr;
  uint64_t scaled_elements = 0;  // 0: nothing is multiplied
};

// The slots of one chunk.
struct SlotPlaces {
  Chunk chunk;
  std::vector<std::byte*> base;  // by slot: in the arena, or a peer's memory that is exposed
  std::vector<size_t> offset;    // by slot: in the arena
  std::byte* arena = nullptr;
  size_t arena_bytes = 0;
  // Where slots lie that are no message of a transport's, if not in the arena, at the same offsets.
  std::byte* device_arena = nullptr;
  const std::vector<bool>* on_device = nullptr;  // by slot, where there is such an arena

  // Where the slot lies while nothing is exposed in its place.
  std::byte* home(size_t slot) const {
    return (on_device && (*on_device)[slot] ? device_arena : arena) + offset[slot];
  }
};

// The places of a program's operands in one execution: whoever runs a call sets `buffers` first.
// Not thread-safe. Cost of locate(): O(ranges of the operand), and for a part of a slot the ranges
// of the slot it walks over; nothing is allocated once the caller's segments have grown.
class DataPlaces {
 public:
  // `program` outlives this.
  DataPlaces(const Program& program, size_t element_bytes)
      : program_(program), element_bytes_(element_bytes) {}

  Buffers buffers;

  // Sets where each slot lies for slots.chunk, and returns the bytes that the arena needs. The
  // caller sees to the arena, then calls use_arena().
  size_t lay_out(SlotPlaces& slots) const;
  void use_arena(SlotPlaces& slots) const;
  // Appends the operand's memory. Returns its bytes.
  size_t locate(const SlotPlaces& slots, const Operand& operand,
                std::vector<Segment>* segments) const;
  size_t element_bytes() const { return element_bytes_; }

 private:
  const Layout& layout_of(Buffer buffer) const;
  size_t locate_in_slot(const SlotPlaces& slots, const Operand& operand,
                        std::vector<Segment>* segments) const;

  const Program& program_;
  const size_t element_bytes_;
};

}  // namespace sennit
