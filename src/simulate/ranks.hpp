// ranks.hpp: all ranks of a simulated collective, or of several at once: engine/execution.cpp's
// rules without data.
//
// A rank here stands for all of its class (simulate/symmetry.hpp), for one of its calls each. It
// has a processor that does one thing at a time: the posting of sends, peer after peer, then
// reductions and copies, lowest chunk first. A posted message waits for its receive if it is large,
// then for its turn on the way to that peer, then moves. Where the network has queues the way has
// two parts, the sender's links and the receiver's: a message is in both at once, and each has its
// own turns. Memory: O(steps * lanes) a rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "schedule/layout.hpp"
#include "schedule/prepared.hpp"
#include "simulate/network.hpp"

namespace sennit::simulation {

// One run of the simulator: made, run once, and asked. Not thread-safe.
class World {
 public:
  // All must outlive it. Fluid: in one chunk.
  World(const TierTree& tree, std::span<const GroupCall> calls, const SimulateOptions& options,
        const Symmetry& symmetry);
  Status run();
  uint64_t time_ns() const { return end_ns_; }
  uint64_t time_ns(uint32_t rank_class) const { return ranks_[rank_class].end_ns; }
  uint64_t messages() const { return messages_sent_; }
  // That are simulated: of one rank for all that do the same.
  uint64_t messages_to_simulate() const { return all_messages_; }
  std::vector<GroupLoad> loads() const { return network_.loads(); }
  uint64_t least_time_ns() const { return network_.least_time_ns(); }

 private:
  struct LaneStep {
    uint32_t lane, step;
  };
  struct ReadyStep {
    uint64_t order;  // smaller first: of sends the inverted tier, then chunk and step
    uint32_t lane, step;
    bool operator<(const ReadyStep& other) const { return order > other.order; }  // for a max-heap
  };
  struct Message {
    int from = 0, to = 0;         // classes
    uint32_t lane = 0, step = 0;  // the sender's
    uint32_t chunk = 0;
    uint64_t bytes = 0;
    uint64_t begin_ns = 0;  // moves since; before that, asks since
    uint64_t left_ns = 0;   // the sender
    uint32_t next = kNone;
    uint32_t parts_left = 1;  // of its way
  };
  // What a rank sends to one other: ready, waiting and moving.
  struct PeerQueue {
    std::vector<ReadyStep> ready;  // heap
    uint64_t bytes_in_flight = 0;
    uint32_t in_flight = 0;
    bool open = false;  // among the rank's open_peers
    uint64_t latency_ns = 0, post_ns = 0;
    uint64_t asking_ns = 0;  // there and back, of a message that is not sent at once
    int to = 0;              // class
    uint32_t connection = 0;
    bool queues = false;      // the way has a second part: connection + 1
    uint32_t moving = kNone;  // message
    uint32_t first_waiting = kNone, last_waiting = kNone;  // messages, a list through Message::next
    uint32_t first_coming = kNone, last_coming = kNone;    // likewise, in the second part
  };
  struct Rank {
    const Prepared* prepared = nullptr;
    Layout layout;
    uint32_t chunks = 1, lanes = 1;
    uint64_t element_bytes = 1;
    bool skip_empty = true;
    uint64_t end_ns = 0;
    const Symmetry::RankClass* kind = nullptr;
    size_t steps = 0;
    std::vector<uint32_t> deps;  // by lane, then step
    // receives, by lane, then step: chunk + 1 for which it was posted
    std::vector<uint32_t> posted;
    std::vector<uint32_t> chunk, remaining;  // by lane
    std::vector<PeerQueue> peers;
    std::vector<LaneStep> work_list;   // became ready and were not looked at yet
    std::vector<ReadyStep> local;      // heap: reductions and copies that wait for the processor
    std::vector<uint32_t> open_peers;  // min-heap: peers that may have a send to post
    // By chunk and step of a receive that is not posted: the messages that wait for it, a list
    // through Message::next. By those of one that is not full: how many messages arrived.
    std::unordered_map<uint64_t, uint32_t> early, arrived;
    uint32_t chunks_left = 0;
    bool woken = false;  // among woken_
    bool busy = false;   // the processor, with `local_now` or else with `posting`
    LaneStep local_now{kNone, 0};
    uint32_t posting = kNone;
  };
  enum class What : uint8_t { processor_free, granted, left_sender, delivery };
  struct Event {
    uint64_t time_ns;
    uint64_t number;  // first come, first served
    What what;
    uint32_t subject;  // rank or message
    bool operator<(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : number > other.number;
    }
  };

  static uint64_t key(uint32_t chunk, uint32_t step) {
    return static_cast<uint64_t>(chunk) << 32 | step;
  }

  void add_peers(Rank& rank, const Symmetry::RankClass& kind);
  void begin_chunk(int rank, uint32_t lane, uint32_t chunk);
  void wake(int rank);
  void pump_woken();
  void pump(int rank);
  void step_ready(int rank, LaneStep at);
  void step_done(int rank, uint32_t lane, uint32_t step);
  void post_receive(int rank, LaneStep at);
  void queue_send(int rank, LaneStep at);
  void run_processor(int rank);
  bool do_local(int rank);  // these two: whether the processor is busy now
  bool post_next(int rank);
  bool may_post(const Rank& rank, const PeerQueue& peer) const;
  void open_peer(Rank& rank, uint32_t peer);
  void processor_free(int rank);
  void posted(uint32_t message);
  void grant(uint32_t message);
  void move(uint32_t message);
  void start(PeerQueue& peer, uint32_t message);
  void append(uint32_t message, uint32_t* first, uint32_t* last);
  uint32_t take_first(uint32_t* first) const;
  void ended(uint32_t connection);
  void passed(uint32_t message);
  void left_sender(uint32_t message);
  void deliver(uint32_t message);
  void fill(int rank, uint32_t chunk, uint32_t receive);
  void tell(const Message& message, const PeerQueue& peer) const;
  uint32_t receive_of(const Message& message) const;
  static bool is_posted(const Rank& rank, uint32_t chunk, uint32_t receive);
  static bool is_full(const Rank& rank, uint32_t receive, uint32_t arrived);
  PeerQueue& peer_of(const Message& message);
  uint64_t bytes_of(const Rank& rank, const Operand& operand, uint32_t chunk) const;
  void at(uint64_t time_ns, What what, uint32_t subject) {
    if (time_ns < now_ns_) time_ns = kNever;  // the sum has wrapped around
    time_ns = std::max(now_ns_, on_grain(time_ns, options_.grain_ns, mix(event_, subject)));
    events_.push({time_ns, event_++, what, subject});
  }
  uint32_t new_message(const Message& message);
  Status stuck() const;

  const TierTree& tree_;
  const SimulateOptions options_;
  const Symmetry& symmetry_;
  FlowNetwork network_;
  std::vector<Rank> ranks_;
  // Rank, peer; of both parts of a way.
  std::vector<std::pair<uint32_t, uint32_t>> peer_of_connection_;
  std::vector<Message> messages_;
  std::vector<uint32_t> free_messages_;
  std::priority_queue<Event> events_;
  std::vector<int> woken_;  // ranks to which something happened at this time
  uint64_t event_ = 0;
  uint64_t now_ns_ = 0, end_ns_ = 0;
  uint64_t messages_sent_ = 0;
  uint64_t all_messages_ = 0, done_messages_ = 0;
};

// All calls at once, beginning at 0. `calls_ns`, where given: by call, when its last rank is done;
// fluid: what all take.
Result<SimulatedTime> simulate_calls(const TierTree& tree, std::span<const GroupCall> calls,
                                     const SimulateOptions& options,
                                     std::vector<uint64_t>* calls_ns = nullptr);
// Of a rank that runs this program: slots are allocated once a lane.
uint64_t scratch_bytes(const GroupCall& call, const Program& program);
std::vector<TierLoad> by_tier(const TierTree& tree, const std::vector<GroupLoad>& groups);

}  // namespace sennit::simulation
