// execution.hpp: runs one rank's Program over transports: the dynamic half of a collective call.
//
// Chunks run in *lanes*: lane l runs chunks l, l + L, l + 2L, ... one at a time, each lane with its
// own slots. A step starts when its dependencies are done: receives are posted at once, reductions
// run at once, sends wait in a queue per peer, widest tier first, then lowest chunk, and are handed
// over while fewer than `in_flight_bytes` of the peer's earlier ones are under way, so that a deep
// queue never delays the flow that matters. Objects are reused: start() costs no allocation once
// buffers have grown. All calls are made under the engine's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/trace.hpp"
#include "schedule/layout.hpp"
#include "schedule/prepared.hpp"
#include "transports/transport.hpp"

namespace sennit {

class Engine;

// Where the call's data lies. The vectors own what the layouts point at.
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Layout input_layout, output_layout, wire_layout;
  std::vector<uint64_t> counts, input_counts, input_offsets, output_offsets;
  uint64_t divisor = 1;  // avg: by how many to divide
};

class Execution {
 public:
  // `world_of_position`: the communicator's ranks in fabric order; outlives this.
  Execution(Engine& engine, uint32_t comm, const std::vector<int>& world_of_position,
            std::shared_ptr<const Prepared> prepared);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Prepared& prepared() const { return *prepared_; }
  const std::shared_ptr<const Prepared>& shared_prepared() const { return prepared_; }
  Buffers& buffers() { return buffers_; }  // fill before start()
  // `base` is the key of this call's messages without chunk and tag.
  void start(uint32_t seq, bool point_to_point);
  void send_done(SendRequest& request);
  void receive_done(RecvRequest& request);
  // Starts nothing more; done() once nothing is under way. The caller has cancelled the
  // communicator's requests.
  void fail(const Status& status);

  // The short way (engine/small.cpp). compile_small(): after buffers() are filled for the first
  // time; false where the program or the transports do not allow it. Later calls need the same
  // layouts, the buffers may be others.
  bool compile_small();
  void start_small(uint32_t seq);
  bool poll_small();   // looks for messages once; false: go on the general way, with leave_small()
  void leave_small();  // the steps that remain take the general way

  bool done() const { return done_.load(std::memory_order_acquire); }
  const Status& status() const { return status_; }  // after done()
  uint32_t comm() const { return comm_; }
  uint32_t seq() const { return seq_; }
  bool collective_call() const { return !point_to_point_; }
  uint64_t last_progress_ns = 0;  // the engine's, for noticing stalls
  uint64_t last_report_ns = 0;
  std::atomic<bool> awaited{false};  // its caller does nothing but wait for it
  bool timed = false;                // finished_ns is wanted
  uint64_t finished_ns = 0;          // after done()
  uint64_t stalled_ns = 0;           // without progress while it was awaited and this process ran

 private:
  struct Lane {
    Chunk chunk;
    uint32_t remaining = 0;
    std::vector<uint32_t> deps;                  // by step
    std::vector<std::byte*> slot_base;           // by slot: own memory, or a peer's that is exposed
    std::vector<size_t> slot_offset;             // by slot: in the lane's arena
    std::vector<uint32_t> readers;               // by slot: readers that have not run
    std::vector<std::vector<Segment>> segments;  // by message
    std::byte* arena = nullptr;
    size_t arena_bytes = 0;
  };
  struct ReadySend {
    uint64_t order;  // smaller first: inverted tier, chunk, step
    uint32_t lane, step;
    bool operator<(const ReadySend& other) const { return order > other.order; }  // for a max-heap
  };
  struct Peer {
    std::vector<ReadySend> ready;  // heap
    size_t bytes_in_flight = 0;
    uint32_t in_flight = 0;
  };
  struct LaneStep {
    uint32_t lane, step;
  };
  struct SmallPlace {
    Buffer buffer = Buffer::input;
    ptrdiff_t offset = 0;  // from the input, the output, or lane 0's arena
  };
  struct SmallStep {
    SmallMessage message;  // send, recv
    Transport* transport = nullptr;
    SmallPlace target;
    uint32_t first_source = 0;  // into small_sources_
    uint32_t bytes = 0;
    bool nothing = false;  // a message without bytes, which is not sent
  };

  void begin_chunk(uint32_t lane, uint32_t chunk);
  Status lay_out_slots(Lane& lane);
  void step_ready(uint32_t lane, uint32_t step);
  void step_done(uint32_t lane, uint32_t step);
  void pump();
  void post_receive(uint32_t lane, uint32_t step);
  void queue_send(uint32_t lane, uint32_t step);
  void post_sends(uint32_t peer_slot);
  void run_local(uint32_t lane, uint32_t step);
  void slots_read(Lane& lane, uint32_t lane_index, const Step& step);
  void release_exposed(uint32_t lane, uint32_t slot);
  // Appends the operand's memory. Returns its bytes.
  size_t locate(const Lane& lane, const Operand& operand, std::vector<Segment>* segments) const;
  const Layout& layout_of(Buffer buffer) const;
  SendRequest& send_request(uint32_t lane, uint32_t step) {
    return sends_[lane * send_count_ + ordinal_[step]];
  }
  RecvRequest& recv_request(uint32_t lane, uint32_t step) {
    return receives_[lane * recv_count_ + ordinal_[step]];
  }
  std::vector<Segment>& segments_of(uint32_t lane, uint32_t step) {
    return lanes_[lane].segments[message_[step]];
  }
  void fill(MessageRequest& request, uint32_t lane, uint32_t step, size_t bytes);
  void trace(const MessageRequest* request, uint32_t lane, uint32_t step, uint64_t posted_ns,
             size_t bytes);
  void failed(const MessageRequest& request, bool receiving);
  void fail_here(const Status& status);  // fails, and has the engine tell the communicator
  void finish();
  bool place_small(const Operand& operand, SmallPlace* place, size_t* bytes);
  std::byte* small_address(const SmallPlace& place) const {
    std::byte* base = place.buffer == Buffer::input    ? const_cast<std::byte*>(buffers_.input)
                      : place.buffer == Buffer::output ? buffers_.output
                                                       : lanes_[0].arena;
    return base + place.offset;
  }
  void small_ready(uint32_t step);
  void small_pump();
  void small_done(uint32_t step);
  void run_local_small(const SmallStep& small, const Step& step);

  Engine& engine_;
  const uint32_t comm_;
  const std::vector<int>& world_of_position_;
  const std::shared_ptr<const Prepared> prepared_;
  const Program& program_;
  const size_t element_bytes_;
  uint32_t chunks_ = 1;
  uint32_t seq_ = 0;
  bool point_to_point_ = false;
  bool counts_shared_ = true;  // all ranks know all counts
  bool skip_empty_ = true;     // messages without bytes are not sent
  Buffers buffers_;
  std::vector<Lane> lanes_;
  std::vector<uint32_t> ordinal_;  // by step: index among the sends or the receives
  std::vector<uint32_t> message_;  // by step: index among all messages
  uint32_t send_count_ = 0, recv_count_ = 0;
  std::vector<SendRequest> sends_;  // by lane, then ordinal
  std::vector<RecvRequest> receives_;
  std::vector<Peer> peers_;
  std::vector<LaneStep> work_list_;   // steps that became ready and were not looked at yet
  std::vector<LaneStep> local_list_;  // of them, reductions and copies still to be done
  size_t local_next_ = 0;             // the first of those
  std::vector<std::vector<Segment>> reduce_segments_;  // scratch of run_local
  std::vector<const void*> reduce_inputs_;
  std::vector<size_t> reduce_at_, reduce_used_;
  std::vector<SmallStep> small_;  // by step
  std::vector<SmallPlace> small_sources_;
  std::vector<uint32_t> small_start_;  // ready at the start, sends first
  std::vector<uint32_t> small_pending_, small_declined_;
  uint64_t small_posted_ns_ = 0, small_now_ns_ = 0;
  uint64_t outstanding_ = 0;  // requests that transports hold
  uint32_t chunks_left_ = 0;
  bool pumping_ = false;
  Status status_;
  std::atomic<bool> done_{true};
};

}  // namespace sennit
