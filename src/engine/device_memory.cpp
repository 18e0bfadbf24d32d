// device_memory.cpp: see engine/device_memory.hpp.
#include "engine/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/core.h>

namespace sennit {
namespace {

constexpr size_t kAlignment = 256;

// Of memory that is full of a factor; a multiple of every element's size.
constexpr size_t kFactorBytes = 64 * 1024;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

// Of a block, chunks may have so many elements more than others: one at either end of a range.
constexpr size_t kMostMore = 2;

// Repeats what the memory begins with until so many bytes of it are full.
void fill_with_first(std::byte* memory, size_t element, size_t bytes) {
  for (size_t full = element; full < bytes; full *= 2)
    std::memcpy(memory + full, memory, std::min(full, bytes - full));
}

// In how many blocks these ranges lie.
size_t blocks_of(std::span<const Range> ranges) {
  size_t blocks = 0;
  for (const Range& range : ranges) blocks += 1 + (range.end - 1) / kUnits;
  return blocks;
}

// Where slots would lie, for asking in how many pieces their operands do.
std::byte* const kNowhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);

}  // namespace

DeviceMemory::DeviceMemory(Accelerator& accelerator, const Prepared& prepared,
                           const DataPlaces& places, LocalSteps& local_steps, size_t lanes)
    : accelerator_(accelerator),
      prepared_(prepared),
      places_(places),
      local_steps_(local_steps),
      lanes_(lanes) {}

// ---- memory ----

Status DeviceMemory::take(Block& block, size_t bytes, MemoryKind kind) {
  if (bytes == 0) return {};
  const Result<std::byte*> memory = accelerator_.allocate(bytes, kind);
  if (!memory)
    return {memory.status().kind(),
            memory.status().text() + ", for a call: use smaller chunks (SENNIT_CHUNK_BYTES)"};
  block = {*memory, bytes, kind};
  return {};
}

void DeviceMemory::give_back() {
  for (Block* const block : {&slots_, &staging_, &scaled_, &factors_}) {
    accelerator_.free(block->memory, block->bytes, block->kind);
    *block = {};
  }
}

// The first and the last chunk are looked at, and others differ by a few elements a block.
Status DeviceMemory::reserve(const std::vector<bool>& direct, uint32_t chunks) {
  const Program& program = prepared_.program;
  const size_t element = places_.element_bytes();
  SlotPlaces slots;
  slots.base.assign(program.slots.size(), nullptr);
  slots.offset.assign(program.slots.size(), 0);
  staging_offset_.assign(program.steps.size(), kNone);
  staging_room_.assign(program.steps.size(), 0);
  std::vector<Segment> segments;
  arena_bytes_ = staging_bytes_ = work_bytes_ = 0;
  for (const uint32_t chunk : {uint32_t{0}, chunks - 1}) {
    slots.chunk = {chunk, chunks};
    arena_bytes_ = std::max(arena_bytes_, places_.lay_out(slots));
    slots.arena = kNowhere;
    places_.use_arena(slots);
    for (size_t i = 0; i < program.steps.size(); i++) {
      const Step& step = program.steps[i];
      const bool sends = step.kind == StepKind::send;
      const Operand& operand = sends ? program.operands[step.first_source] : step.target;
      segments.clear();
      const size_t bytes = places_.locate(slots, operand, &segments);
      work_bytes_ += bytes;
      if (step.kind == StepKind::reduce && step.sources > accelerator_.most_inputs())
        return {SENNIT_UNSUPPORTED,
                fmt::format("{} inputs of one sum: {} adds up {} at most", step.sources,
                            accelerator_.name(), accelerator_.most_inputs())};
      if (step.kind != StepKind::send && step.kind != StepKind::recv) continue;
      // What lies in one block is one piece in every chunk.
      const size_t blocks = blocks_of(program.ranges_of(operand));
      const bool by_address = direct[i] && (!sends || blocks <= 1);
      if (by_address || (operand.buffer == Buffer::slot && !direct[i])) continue;
      const size_t room = aligned(bytes + kMostMore * blocks * element);
      staging_room_[i] = std::max(staging_room_[i], room);
    }
  }
  for (const Slot& slot : program.slots)
    arena_bytes_ += aligned(
        kMostMore * blocks_of({program.ranges.data() + slot.first_range, slot.ranges}) * element +
        kAlignment);
  arena_bytes_ = aligned(arena_bytes_);
  for (size_t i = 0; i < program.steps.size(); i++)
    if (staging_room_[i] > 0)
      staging_offset_[i] = std::exchange(staging_bytes_, staging_bytes_ + staging_room_[i]);
  work_bytes_ = work_bytes_ / 2 * chunks;
  // Transports reach slots unless all messages are read where they lie.
  bool all_direct = true;
  for (size_t i = 0; i < program.steps.size(); i++) {
    const StepKind kind = program.steps[i].kind;
    if (kind == StepKind::send || kind == StepKind::recv) all_direct &= direct[i];
  }
  SENNIT_RETURN_IF_ERROR(
      take(slots_, arena_bytes_ * lanes_, all_direct ? MemoryKind::device : MemoryKind::pinned));
  SENNIT_RETURN_IF_ERROR(take_for_scaling());
  return take(staging_, staging_bytes_ * lanes_, MemoryKind::pinned);
}

// The input times a piece of memory that is full of the factor.
Status DeviceMemory::take_for_scaling() {
  const Buffers& buffers = places_.buffers;
  if (buffers.scaled_elements == 0) return {};
  const size_t element = places_.element_bytes();
  unscaled_ = buffers.input;
  SENNIT_RETURN_IF_ERROR(take(scaled_, buffers.scaled_elements * element, MemoryKind::device));
  SENNIT_RETURN_IF_ERROR(take(factors_, kFactorBytes, MemoryKind::pinned));
  std::memcpy(factors_.memory, buffers.factor.data(), element);
  return {};
}

void DeviceMemory::read_factor(uint32_t token) {
  const void* const from = places_.buffers.factor_in_stream;
  LocalWork work;
  work.out = factors_.memory;
  work.inputs = {&from, 1};
  work.count = places_.element_bytes();
  place_->worker().submit(work, StreamPlace::token(number_, token));
}

DeviceMemory::Submitted DeviceMemory::scale_input(Buffers& buffers, uint32_t token) {
  Submitted submitted;
  const size_t element = places_.element_bytes();
  const size_t bytes = buffers.scaled_elements * element;
  fill_with_first(factors_.memory, element, std::min(kFactorBytes, bytes));
  for (size_t at = 0; at < bytes; at += kFactorBytes) {
    const size_t piece = std::min(kFactorBytes, bytes - at);
    const void* const inputs[] = {unscaled_ + at, factors_.memory};
    LocalWork work;
    work.copies = false;
    work.type = prepared_.request.type;
    work.op = Op::prod;
    work.out = scaled_.memory + at;
    work.inputs = inputs;
    work.count = piece / element;
    place_->worker().submit(work, StreamPlace::token(number_, token));
    submitted.pieces++;
  }
  submitted.bytes = bytes;
  buffers.input = scaled_.memory;
  return submitted;
}

Status DeviceMemory::give_arena(SlotPlaces& slots, size_t lane, size_t bytes) const {
  if (bytes > arena_bytes_)
    return {SENNIT_INTERNAL, fmt::format("a chunk needs {} bytes of slots on a device, {} were "
                                         "taken",
                                         bytes, arena_bytes_)};
  slots.arena = slots_.memory + lane * arena_bytes_;
  return {};
}

Result<std::byte*> DeviceMemory::staging(size_t lane, uint32_t step, size_t bytes) const {
  if (staging_offset_[step] == kNone || bytes > staging_room_[step])
    return Status(SENNIT_INTERNAL,
                  fmt::format("a message of {} bytes of a device's memory has {} bytes to go "
                              "through",
                              bytes, staging_room_[step]));
  return staging_.memory + lane * staging_bytes_ + staging_offset_[step];
}

// ---- work ----

void DeviceMemory::join(std::shared_ptr<StreamPlace> place, Execution& execution) {
  place_ = std::move(place);
  number_ = place_->join(execution);
}

DeviceMemory::Submitted DeviceMemory::run(const SlotPlaces& slots, const Step& step,
                                          uint32_t token) {
  Submitted submitted;
  local_steps_.for_each_piece(slots, step, [&](const LocalWork& work) {
    place_->worker().submit(work, StreamPlace::token(number_, token));
    submitted.pieces++;
    submitted.bytes += work.count * (work.copies ? 1 : places_.element_bytes());
  });
  return submitted;
}

DeviceMemory::Submitted DeviceMemory::copy(const std::vector<Segment>& segments, std::byte* packed,
                                           bool pack, uint32_t token) {
  Submitted submitted;
  for (const Segment& segment : segments) {
    const void* const from = pack ? segment.data : packed;
    LocalWork work;
    work.out = pack ? packed : segment.data;
    work.inputs = {&from, 1};
    work.count = segment.bytes;
    packed += segment.bytes;
    if (segment.bytes == 0) continue;
    place_->worker().submit(work, StreamPlace::token(number_, token));
    submitted.pieces++;
    submitted.bytes += segment.bytes;
  }
  return submitted;
}

void DeviceMemory::leave() {
  if (!place_) return give_back();
  if (place_->in_graph()) return place_->leave(number_);
  give_back();
  place_->leave(number_);
  place_.reset();
}

void DeviceMemory::leave_graph() {
  give_back();
  place_.reset();
}

}  // namespace sennit
