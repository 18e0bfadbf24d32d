// device_memory.hpp: what an execution on device memory needs besides: the worker that does its
// local work, and memory that transports reach.
//
// Transports send and receive what the processor can read and write. A message out of the user's
// memory is copied into pinned memory first, and one that comes is copied out of it; slots lie in
// pinned memory themselves, so that what goes from slot to slot is copied once on each side.
// Between ranks of one process that use the same device none of this is needed: the message is
// exposed, and the worker reads it where it lies. All memory is taken before the worker is in the
// stream, since to ask the driver for more might wait for it. All calls are made under the engine's
// lock, but for reserve(), which asks the driver, and the driver may wait for a kernel that waits
// for the engine.
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

class DeviceMemory {
 public:
  // All outlive this. `lanes`: of the execution.
  DeviceMemory(Accelerator& accelerator, const Prepared& prepared, const DataPlaces& places,
               LocalSteps& local_steps, size_t lanes);
  ~DeviceMemory() { give_back(); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Takes memory for a call whose buffers are set. `direct`: by peer slot of messages, whether the
  // peer's device memory is read where it lies; `chunks` of the call.
  Status reserve(const std::vector<bool>& direct, uint32_t chunks);
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
  // Pinned memory for the message of this step.
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
  size_t message_bytes(const Operand& operand, uint32_t chunks) const;
  size_t arena_bytes(uint32_t chunks) const;

  Accelerator& accelerator_;
  const Prepared& prepared_;
  const DataPlaces& places_;
  LocalSteps& local_steps_;
  const size_t lanes_;
  std::shared_ptr<StreamPlace> place_;
  uint32_t number_ = 0;  // of the execution at that place
  uint64_t work_bytes_ = 0;
  Block slots_, staging_, scaled_, factors_;
  const std::byte* unscaled_ = nullptr;  // the input that is multiplied
  size_t arena_bytes_ = 0;               // of a lane
  size_t staging_bytes_ = 0;             // of a lane
  static constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> staging_offset_;  // by step, in a lane's; kNone: there is none
  std::vector<size_t> staging_room_;    // by step
};

}  // namespace sennit
