// short_way.hpp: the short way of small blocking calls: what an Execution does when every message
// is in one piece and small enough for Transport::send_now and recv_now.
//
// The program's steps are turned once into addresses relative to the input, the output and the
// arena. A call then sends, polls the peers' messages straight out of the transport, and reduces:
// no requests, no completions, no queues. Dependencies are counted as in the general way, so at any
// point the steps that remain can be handed over to it: when a peer is late, or a transport
// declines. All calls are made under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data_places.hpp"
#include "schedule/prepared.hpp"
#include "transports/transport.hpp"

namespace sennit {

class Engine;

class ShortWay {
 public:
  // Null: the program or the transports do not allow it. What is given outlives it; the buffers
  // have been filled for the first time, `slots` laid out for the only chunk. `skip_empty`:
  // messages without bytes are not sent.
  static std::unique_ptr<ShortWay> compile(Engine& engine, uint32_t comm,
                                           const std::vector<int>& world_of_position,
                                           const Prepared& prepared, const DataPlaces& places,
                                           const SlotPlaces& slots, bool skip_empty);

  // Every later call needs the same layouts; the buffers may be others.
  void start(uint32_t seq, uint64_t now_ns);
  bool poll();  // looks for messages once; false: hand the rest over to the general way
  bool done() const { return remaining_ == 0; }
  uint64_t now_ns() const { return now_ns_; }  // when the last message came or went

  // For handing over: how many steps are not done, how many others each waits for, and those that
  // wait for none.
  uint32_t remaining() const { return remaining_; }
  const std::vector<uint32_t>& deps() const { return deps_; }
  std::vector<uint32_t> take_ready();

 private:
  struct BufferOffset {
    Buffer buffer = Buffer::input;
    ptrdiff_t offset = 0;  // from the input, the output, or the arena
  };
  struct SmallStep {
    SmallMessage message;  // send, recv
    Transport* transport = nullptr;
    BufferOffset target;
    uint32_t first_source = 0;  // into sources_
    uint32_t bytes = 0;
    bool nothing = false;    // a message without bytes, which is not sent
    uint64_t posted_ns = 0;  // of this call: when it could first begin
  };

  ShortWay(Engine& engine, uint32_t comm, const Prepared& prepared, const DataPlaces& places,
           const SlotPlaces& slots);
  bool compile_step(uint32_t step, const std::vector<int>& world_of_position, bool skip_empty);
  bool place(const Operand& operand, BufferOffset* place, size_t* bytes) const;
  std::byte* address(const BufferOffset& place) const {
    std::byte* base = place.buffer == Buffer::input ? const_cast<std::byte*>(places_.buffers.input)
                      : place.buffer == Buffer::output ? places_.buffers.output
                                                       : slots_.arena;
    return base + place.offset;
  }
  void ready(uint32_t step);
  void go_on();
  void step_done(uint32_t step);
  void run_local(const SmallStep& small, const Step& step);
  void trace(uint32_t step);

  Engine& engine_;
  const uint32_t comm_;
  const Prepared& prepared_;
  const Program& program_;
  const DataPlaces& places_;
  const SlotPlaces& slots_;
  std::vector<SmallStep> steps_;
  std::vector<BufferOffset> sources_;
  std::vector<uint32_t> start_;  // ready at the start, sends first
  uint32_t seq_ = 0;
  uint32_t remaining_ = 0;
  std::vector<uint32_t> deps_;       // by step: how many it waits for
  std::vector<uint32_t> work_list_;  // steps that became ready and were not looked at yet
  std::vector<uint32_t> pending_;    // receives whose message has not come
  std::vector<uint32_t> declined_;   // messages that the transport has not taken or has not got
  std::vector<const void*> inputs_;  // scratch of run_local
  uint64_t now_ns_ = 0;              // as it was last read
};

}  // namespace sennit
