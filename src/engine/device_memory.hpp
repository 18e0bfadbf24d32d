// device_memory.hpp: what an execution on device memory needs besides: the worker that does its
// local work, and memory that transports reach.
//
// Transports send and receive what the processor can read and write. A message out of the user's
// memory is copied into pinned memory first, and one that comes is copied out of it; slots that
// such messages go from and to lie in pinned memory themselves, so that what goes from slot to slot
// is copied once on each side. A peer on this host whose device has mapped memory of this rank's
// reads there instead; what the user has is copied into such memory first. Between ranks of one
// process that use the same device none of this is needed: the message is exposed, and the worker
// reads it where it lies. All memory is taken before the worker is in the stream, since to ask the
// driver for more might wait for it. All calls are made under the engine's lock, but for exported()
// and reserve(), which asks the driver, and the driver may wait for a kernel that waits for the
// engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "engine/data_places.hpp"
#include "engine/local_steps.hpp"
#include "engine/stream_place.hpp"
#include "schedule/prepared.hpp"

namespace sennit {

// How a message between the memories of two ranks' devices goes. Both ends choose by themselves:
// who receives from a peer that may export is ready for pinned memory as well.
enum class MessageWay : uint8_t {
  staged,    // through pinned memory
  exported,  // out of the sender's device, where the receiver's has mapped it
  direct,    // read where it lies
};

// Of one execution.
class DeviceMemory {
 public:
  // All outlive this. `lanes`: of the execution.
  DeviceMemory(Accelerator& accelerator, const Prepared& prepared, const DataPlaces& places,
               LocalSteps& local_steps, size_t lanes);
  ~DeviceMemory() { give_back(); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Takes memory for a call whose buffers are set, in place of what it had. `ways`: by step, of
  // those that send or receive; `chunks` of the call.
  Status reserve(std::vector<MessageWay> ways, uint32_t chunks);
  // What exported messages lie in, which their receivers must have mapped; an error where it cannot
  // be exported.
  Result<std::vector<ExportedMemory>> exported();
  void join(std::shared_ptr<StreamPlace> place, Execution& execution);
  // Reads the factor of a call whose buffers say where it lies: one piece, and scale_input() comes
  // behind it.
  void read_factor(uint32_t token);
  // Multiplies the input of a call whose buffers ask for it, into memory of its own, which is the
  // input from then on. Returns what there is to wait for.
  struct Submitted {
    uint32_t pieces = 0;
    size_t bytes = 0;  // of the results
  };
  Submitted scale_input(Buffers& buffers, uint32_t token);
  // Whether nothing may begin yet; also where it has no place.
  bool waits() const { return !place_ || place_->waits(); }
  // Bytes of all results, for StreamWorker::enqueue().
  uint64_t work_bytes() const { return work_bytes_; }

  // The arena of the lane's slots; an error where its chunk needs more than there is.
  Status give_arena(SlotPlaces& slots, size_t lane, size_t bytes) const;
  // Whether the message of this step, which lies in so many pieces, is copied into staging() before
  // it is sent; or may come there, to be copied out of it.
  bool stages_send(uint32_t step, size_t pieces) const;
  bool stages_receive(uint32_t step) const { return staging_offset_[step] != kNone; }
  MessageWay way(uint32_t step) const { return ways_[step]; }
  // Memory for the message of this step: of the device where it is sent exported, else pinned.
  Result<std::byte*> staging(size_t lane, uint32_t step, size_t bytes) const;

  // Each submits some pieces of work. local_done() comes once for each piece.
  Submitted run(const SlotPlaces& slots, const Step& step, uint32_t token);
  Submitted copy(const std::vector<Segment>& segments, std::byte* packed, bool pack,
                 uint32_t token);
  // The call is done: the stream may go on, and memory is for others. In a graph it stays for the
  // next time, until leave_graph().
  void leave();
  void leave_graph();
  Accelerator& accelerator() { return accelerator_; }

 private:
  struct Block {
    std::byte* memory = nullptr;
    size_t bytes = 0;
    MemoryKind kind = MemoryKind::pinned;
  };
  Status take(Block& block, size_t bytes, MemoryKind kind);
  Status take_for_scaling();
  void give_back();
  void place_slots();
  bool on_device(const Operand& operand) const {
    return operand.buffer == Buffer::slot && slot_on_device_[operand.slot];
  }
  bool may_need_staging(size_t step, const Operand& operand, size_t blocks) const;
  bool sends_exported(size_t step) const;
  Status take_slots();
  void measure_chunk(SlotPlaces& slots);

  Accelerator& accelerator_;
  const Prepared& prepared_;
  const DataPlaces& places_;
  LocalSteps& local_steps_;
  const size_t lanes_;
  std::shared_ptr<StreamPlace> place_;
  uint32_t number_ = 0;  // of the execution at that place
  uint64_t work_bytes_ = 0;
  // Pinned: slots and staging. Of the device: the same, and the scaled input.
  Block slots_, staging_, device_slots_, exported_staging_, scaled_, factors_;
  const std::byte* unscaled_ = nullptr;  // the input that is multiplied
  std::vector<MessageWay> ways_;         // by step
  std::vector<bool> slot_on_device_;     // by slot
  size_t arena_bytes_ = 0;               // of a lane
  size_t staging_bytes_ = 0;             // of a lane
  size_t exported_staging_bytes_ = 0;    // of a lane
  static constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> staging_offset_;  // by step, in a lane's; kNone: there is none
  std::vector<size_t> staging_room_;    // by step
};

}  // namespace sennit
