// execution.hpp: runs one rank's Program over transports: the dynamic half of a collective call.
//
// Chunks run in *lanes*: lane l runs chunks l, l + L, l + 2L, ... one at a time, each lane with its
// own slots. A step starts when its dependencies are done: receives are posted at once, reductions
// run at once, lowest chunk first, sends wait in a queue per peer, widest tier first, then lowest
// chunk, and are handed over while fewer than `in_flight_bytes` of the peer's earlier ones are
// under way, so that a deep queue never delays the flow that matters. Objects are reused: start()
// costs no allocation once buffers have grown. All calls are made under the engine's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/data_places.hpp"
#include "engine/device_memory.hpp"
#include "engine/local_steps.hpp"
#include "engine/send_queue.hpp"
#include "engine/short_way.hpp"
#include "record/event.hpp"
#include "schedule/prepared.hpp"
#include "transports/transport.hpp"

namespace sennit {

class Engine;

class Execution {
 public:
  // `world_of_position`: the communicator's ranks in fabric order; outlives this. `accelerator`:
  // all buffers are memory that it reaches; null: that the processor does.
  Execution(Engine& engine, uint32_t comm, const std::vector<int>& world_of_position,
            std::shared_ptr<const Prepared> prepared, Accelerator* accelerator = nullptr);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Prepared& prepared() const { return *prepared_; }
  const std::shared_ptr<const Prepared>& shared_prepared() const { return prepared_; }
  Buffers& buffers() { return places_.buffers; }  // fill before start()
  // A collective call. `seq`: its number on the communicator, part of its messages' keys.
  void start(uint32_t seq);
  // One message. `seq`: its number between this rank and `peer`, a world rank, with this tag.
  void start_message(uint32_t seq, int peer, uint32_t tag);
  // A message whose source is not known yet: under way, and nothing to do before start_message().
  void await_source(uint32_t tag);
  // The engine's: a request of this execution came back, with its status.
  void send_done(SendRequest& request);
  void receive_done(RecvRequest& request);
  // Starts nothing more; done() once nothing is under way. The caller has cancelled the
  // communicator's requests.
  void fail(const Status& status);

  // The short way (engine/short_way.hpp). compile_small(): after buffers() are filled for the first
  // time; false where the program or the transports do not allow it. Later calls need the same
  // layouts, the buffers may be others.
  bool compile_small();
  void start_small(uint32_t seq);
  bool poll_small();   // looks for messages once; false: go on the general way, with leave_small()
  void leave_small();  // the steps that remain take the general way

  // ---- device memory ----
  bool on_device() const { return device_ != nullptr; }
  // Takes memory for the next call, and that call will work at the place, which its stream has not
  // come to yet. Once buffers() are filled, before it is started. `peer`: of a message, the world
  // rank at its other end where it is known, else -1.
  Status join(std::shared_ptr<StreamPlace> place, int peer = -1);
  uint64_t work_bytes() const { return device_->work_bytes(); }
  // In a graph, in place of join() and start(): the same, and it is made each time that the graph
  // comes to the place, by replay(). `seq` as for start(); of a message `peer` and `tag` as well.
  // Until leave_graph(), after which it may be used for other calls.
  Status capture(std::shared_ptr<StreamPlace> place, uint32_t seq);
  Status capture_message(std::shared_ptr<StreamPlace> place, uint32_t seq, int peer, uint32_t tag);
  void leave_graph();
  bool in_graph() const { return in_graph_; }
  void replay();
  // StreamPlace's: it waits for its stream; the stream has come; a piece of work is done.
  bool armed() const { return *armed_; }
  const std::shared_ptr<std::atomic<bool>>& armed_flag() const { return armed_; }
  void arrive();
  void local_done(uint32_t token);
  // The device does nothing any more: it ends with `why`.
  void device_lost(const Status& why);
  // Fails, and has the engine tell the communicator.
  void fail_here(const Status& status);

  void record_stall(uint64_t now_ns);  // in the trace: nothing has moved since last_progress_ns

  bool done() const { return done_.load(std::memory_order_acquire); }
  const Status& status() const { return status_; }  // after done()
  uint32_t comm() const { return comm_; }
  uint32_t seq() const { return seq_; }
  bool collective_call() const { return !point_to_point_; }
  bool is_awaited() const { return awaited || waiters > 0; }
  // Of a message: the world rank at its other end, once that is known, and its tag.
  int peer() const { return peer_; }
  uint32_t tag() const { return tag_; }
  uint64_t last_progress_ns = 0;  // the engine's, for noticing stalls
  uint64_t last_report_ns = 0;
  std::atomic<bool> awaited{false};  // its caller does nothing but wait for it
  std::atomic<int> waiters{0};       // who wait for it until they have waited for long enough
  bool timed = false;                // finished_ns is wanted
  uint64_t finished_ns = 0;          // after done()
  uint64_t stalled_ns = 0;           // without progress while it was awaited and this process ran

 private:
  struct Lane {
    SlotPlaces slots;  // and the chunk that is under way
    uint32_t remaining = 0;
    std::vector<uint32_t> deps;                  // by step
    std::vector<uint32_t> readers;               // by slot: readers that have not run
    std::vector<std::vector<Segment>> segments;  // by message
  };
  struct LaneStep {
    uint32_t lane, step;
  };
  // A reduction or copy that may be done: the lowest chunk's first, for a heap whose top is last.
  struct LocalStep {
    uint32_t chunk, step, lane;
    bool operator<(const LocalStep& other) const {
      return std::pair(chunk, step) > std::pair(other.chunk, other.step);
    }
  };
  void begin(uint32_t seq);
  void go();
  void begin_chunk(uint32_t lane, uint32_t chunk);
  Status lay_out_slots(Lane& lane);
  void step_ready(uint32_t lane, uint32_t step);
  void step_done(uint32_t lane, uint32_t step);
  void pump();
  void post_receive(uint32_t lane, uint32_t step);
  void queue_send(uint32_t lane, uint32_t step);
  void post_sends(uint32_t peer_slot);
  void run_local(uint32_t lane, uint32_t step);
  void local_step_done(uint32_t lane, uint32_t step, size_t bytes, uint64_t begin_ns);
  Status take_device_memory(int peer);
  MessageWay way_of(int peer, StepKind kind);
  std::vector<MessageWay> message_ways(int peer);
  bool stage_unmapped(const Result<std::vector<ExportedMemory>>& exported,
                      std::vector<MessageWay>& ways, int peer);
  int other_end(const Step& step, int peer) const;
  bool await_pieces(uint32_t lane, uint32_t step, const DeviceMemory::Submitted& submitted);
  bool stage_send(uint32_t lane, uint32_t step, size_t bytes);
  void push_send(uint32_t lane, uint32_t step, size_t bytes);
  void scale_input();
  void scaling_done();
  Status stage_receive(uint32_t lane, uint32_t step, size_t bytes, RecvRequest& request);
  bool unpack(uint32_t lane, uint32_t step, RecvRequest& request);
  void slots_read(Lane& lane, uint32_t lane_index, const Step& step);
  void release_exposed(uint32_t lane, uint32_t slot);
  void release(RecvRequest& request);
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
  TraceEvent event_of(uint32_t lane, uint32_t step, uint64_t posted_ns, size_t bytes);
  TraceEvent message_event(const MessageRequest& request, uint32_t lane, uint32_t step,
                           uint64_t handed_ns);
  TraceEvent call_event(EventKind kind, uint64_t when_ns) const;
  void record(const TraceEvent& event);
  void record_call(EventKind kind, uint64_t when_ns);
  void failed(const MessageRequest& request, bool receiving);
  void release_all();
  void finish();
  void finish(uint64_t now_ns);

  Engine& engine_;
  const uint32_t comm_;
  const std::vector<int>& world_of_position_;
  const std::shared_ptr<const Prepared> prepared_;
  const Program& program_;
  DataPlaces places_;
  LocalSteps local_steps_;
  uint32_t chunks_ = 1;
  uint32_t seq_ = 0;
  uint64_t begin_ns_ = 0;
  bool point_to_point_ = false;
  bool awaits_source_ = false;  // await_source(): there is nothing to do yet
  bool in_graph_ = false;
  uint32_t replay_ = 0;  // which one it is, from 1 to kReplays and then again; 0: in no graph
  int peer_ = -1;        // of a message
  uint32_t tag_ = 0;
  bool counts_shared_ = true;  // all ranks know all counts
  bool skip_empty_ = true;     // messages without bytes are not sent
  std::vector<Lane> lanes_;
  std::vector<uint32_t> ordinal_;  // by step: index among the sends or the receives
  std::vector<uint32_t> message_;  // by step: index among all messages
  uint32_t send_count_ = 0, recv_count_ = 0;
  std::vector<SendRequest> sends_;   // by lane, then ordinal
  std::vector<uint64_t> handed_ns_;  // of sends_: when the transport took them
  std::vector<RecvRequest> receives_;
  std::vector<SendQueue> peers_;          // by index in Prepared::peers
  std::vector<LaneStep> work_list_;       // steps that became ready and were not looked at yet
  std::vector<LocalStep> local_list_;     // heap: of them, reductions and copies still to be done
  std::unique_ptr<DeviceMemory> device_;  // null: the processor does what is done here
  // Started, and its stream has not come to it. Shared with those who say so to other ranks.
  std::shared_ptr<std::atomic<bool>> armed_ = std::make_shared<std::atomic<bool>>(false);
  // Of device memory, by token, which is lane * steps + step.
  struct LocalPieces {
    uint32_t left = 0;
    size_t bytes = 0;
    uint64_t begin_ns = 0;
  };
  std::vector<LocalPieces> local_pieces_;
  // Tokens of what comes before all steps: the pieces of the input, and before them the factor.
  static constexpr uint32_t kScaling = UINT32_MAX, kReadingFactor = UINT32_MAX - 1;
  uint32_t scaling_ = 0;                 // pieces that are being multiplied
  uint64_t local_out_ = 0;               // pieces that the worker has
  std::unique_ptr<ShortWay> short_way_;  // once compile_small() has made one
  uint64_t outstanding_ = 0;             // requests that transports hold
  uint32_t chunks_left_ = 0;
  bool pumping_ = false;
  bool releases_ = false;  // it has failed, and peers' memory is exposed to it still
  bool torn_ = false;      // what was read may be: nothing goes on, and it will be cancelled
  Status status_;
  std::atomic<bool> done_{true};
};

}  // namespace sennit
