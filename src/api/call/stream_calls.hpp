// stream_calls.hpp: puts calls on device memory into streams: one call, or those of a group.
//
// Each work gets its place before it is started and the place is enqueued after it: where a launch
// returns only when the kernel has ended, the call is under way by then. The calls of a group that
// go into one stream share a place. One thread; used once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accelerator/accelerator.hpp"
#include "engine/engine.hpp"
#include "engine/stream_place.hpp"

namespace sennit {

// Where a call on device memory goes; no accelerator: it is on the host's.
struct StreamTarget {
  Accelerator* accelerator = nullptr;
  void* stream = nullptr;  // by Accelerator::handle_of()
  bool in_graph = false;   // the stream is being captured into one
};

// See above.
class StreamCalls {
 public:
  // The place of the next call of `owner` to this stream, whose executions `engine` drives.
  Result<std::shared_ptr<StreamPlace>> place(Engine& engine, const StreamOwner& owner,
                                             const StreamTarget& target);
  // Of that call: see DeviceMemory::work_bytes().
  void add_bytes(const StreamPlace& place, uint64_t bytes);
  // Puts all places into their streams; what could not be fails, and so does its communicator.
  Status enqueue();

 private:
  struct Used {
    Engine* engine;
    StreamTarget target;
    std::shared_ptr<StreamPlace> place;
    uint64_t bytes = 0;
  };
  std::vector<Used> used_;
};

}  // namespace sennit
