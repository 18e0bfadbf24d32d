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
  for (Block* const block :
       {&slots_, &staging_, &device_slots_, &exported_staging_, &scaled_, &factors_}) {
    accelerator_.free(block->memory, block->bytes, block->kind);
    *block = {};
  }
}

// Transports reach the slots that staged messages go from and to.
void DeviceMemory::place_slots() {
  const Program& program = prepared_.program;
  slot_on_device_.assign(program.slots.size(), true);
  for (size_t i = 0; i < program.steps.size(); i++) {
    const Step& step = program.steps[i];
    const bool sends = step.kind == StepKind::send;
    if ((!sends && step.kind != StepKind::recv) || ways_[i] != MessageWay::staged) continue;
    const Operand& operand = sends ? program.operands[step.first_source] : step.target;
    if (operand.buffer == Buffer::slot) slot_on_device_[operand.slot] = false;
  }
}

bool DeviceMemory::sends_exported(size_t step) const {
  return ways_[step] == MessageWay::exported &&
         prepared_.program.steps[step].kind == StepKind::send;
}

// Of a message that may lie in so many blocks. What lies in one is one piece in every chunk.
bool DeviceMemory::may_need_staging(size_t step, const Operand& operand, size_t blocks) const {
  const bool sends = prepared_.program.steps[step].kind == StepKind::send;
  switch (ways_[step]) {
    case MessageWay::direct:
      return sends && blocks > 1;
    case MessageWay::exported:
      return sends ? blocks > 1 || !on_device(operand)
                   : operand.buffer != Buffer::slot || on_device(operand);
    case MessageWay::staged:
      break;
  }
  return operand.buffer != Buffer::slot;
}

bool DeviceMemory::stages_send(uint32_t step, size_t pieces) const {
  const Operand& operand = prepared_.program.operands[prepared_.program.steps[step].first_source];
  switch (ways_[step]) {
    case MessageWay::direct:
      return pieces != 1;
    case MessageWay::exported:
      return pieces != 1 || !on_device(operand);
    case MessageWay::staged:
      break;
  }
  return operand.buffer != Buffer::slot;
}

// What the steps of this chunk need.
void DeviceMemory::measure_chunk(SlotPlaces& slots) {
  const Program& program = prepared_.program;
  const size_t element = places_.element_bytes();
  std::vector<Segment> segments;
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
    if (!sends && step.kind != StepKind::recv) continue;
    const size_t blocks = blocks_of(program.ranges_of(operand));
    if (!may_need_staging(i, operand, blocks)) continue;
    const size_t room = aligned(bytes + kMostMore * blocks * element);
    staging_room_[i] = std::max(staging_room_[i], room);
  }
}

// The first and the last chunk are looked at, and others differ by a few elements a block.
Status DeviceMemory::reserve(std::vector<MessageWay> ways, uint32_t chunks) {
  give_back();
  const Program& program = prepared_.program;
  for (const Step& step : program.steps)
    if (step.kind == StepKind::reduce && step.sources > accelerator_.most_inputs())
      return {SENNIT_UNSUPPORTED,
              fmt::format("{} inputs of one sum: {} adds up {} at most", step.sources,
                          accelerator_.name(), accelerator_.most_inputs())};
  ways_ = std::move(ways);
  place_slots();
  staging_offset_.assign(program.steps.size(), kNone);
  staging_room_.assign(program.steps.size(), 0);
  arena_bytes_ = staging_bytes_ = exported_staging_bytes_ = work_bytes_ = 0;
  SlotPlaces slots;
  slots.base.assign(program.slots.size(), nullptr);
  slots.offset.assign(program.slots.size(), 0);
  for (const uint32_t chunk : {uint32_t{0}, chunks - 1}) {
    slots.chunk = {chunk, chunks};
    measure_chunk(slots);
  }
  work_bytes_ = work_bytes_ / 2 * chunks;
  for (size_t i = 0; i < program.steps.size(); i++) {
    if (staging_room_[i] == 0) continue;
    size_t& used = sends_exported(i) ? exported_staging_bytes_ : staging_bytes_;
    staging_offset_[i] = std::exchange(used, used + staging_room_[i]);
  }
  SENNIT_RETURN_IF_ERROR(take_slots());
  SENNIT_RETURN_IF_ERROR(take_for_scaling());
  SENNIT_RETURN_IF_ERROR(
      take(exported_staging_, exported_staging_bytes_ * lanes_, MemoryKind::device));
  return take(staging_, staging_bytes_ * lanes_, MemoryKind::pinned);
}

// All slots have places in both arenas, of which only those are taken that some slot lies in.
Status DeviceMemory::take_slots() {
  const Program& program = prepared_.program;
  for (const Slot& slot : program.slots)
    arena_bytes_ +=
        aligned(kMostMore * blocks_of({program.ranges.data() + slot.first_range, slot.ranges}) *
                    places_.element_bytes() +
                kAlignment);
  arena_bytes_ = aligned(arena_bytes_);
  const auto some = [&](bool on_device) {
    return std::find(slot_on_device_.begin(), slot_on_device_.end(), on_device) !=
           slot_on_device_.end();
  };
  if (some(true))
    SENNIT_RETURN_IF_ERROR(take(device_slots_, arena_bytes_ * lanes_, MemoryKind::device));
  return some(false) ? take(slots_, arena_bytes_ * lanes_, MemoryKind::pinned) : Status();
}

Result<std::vector<ExportedMemory>> DeviceMemory::exported() {
  std::vector<ExportedMemory> all;
  for (const Block* const block : {&exported_staging_, &device_slots_}) {
    if (!block->memory) continue;
    Result<ExportedMemory> one = accelerator_.export_memory(block->memory);
    if (!one) return one.status();
    all.push_back(*std::move(one));
  }
  return all;
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
  if (slots_.memory) slots.arena = slots_.memory + lane * arena_bytes_;
  if (device_slots_.memory) slots.device_arena = device_slots_.memory + lane * arena_bytes_;
  slots.on_device = &slot_on_device_;
  return {};
}

Result<std::byte*> DeviceMemory::staging(size_t lane, uint32_t step, size_t bytes) const {
  if (staging_offset_[step] == kNone || bytes > staging_room_[step])
    return Status(SENNIT_INTERNAL,
                  fmt::format("a message of {} bytes of a device's memory has {} bytes to go "
                              "through",
                              bytes, staging_room_[step]));
  if (sends_exported(step))
    return exported_staging_.memory + lane * exported_staging_bytes_ + staging_offset_[step];
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
