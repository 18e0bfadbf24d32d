// ranks.hpp: the ranks of a replay (perf/simgrid/replay.hpp) and the messages between them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "perf/simgrid/platform.hpp"
#include "perf/simgrid/replay.hpp"

namespace sennit::judge {

class Ranks {
 public:
  Ranks(const Platform& platform, const TierTree& tree, const Request& request,
        const Blueprint& blueprint, uint32_t chunks, const ReplayOptions& options);
  Status run(const simgrid::s4u::Engine& engine);
  double time_s() const { return end_s_; }
  uint64_t messages() const { return sent_; }

 private:
  // Of one rank, in the order in which sends go to a peer.
  using Send = std::tuple<int, uint32_t, uint32_t>;  // tier inverted, chunk, step

  // To whom a rank sends: what waits to go there, and what is on its way.
  struct Receiver {
    int32_t position = 0;
    std::set<Send> queue;
    uint32_t under_way = 0;
    uint64_t bytes_under_way = 0;
  };
  struct Piece {  // a step of a chunk
    uint32_t chunk = 0, step = 0;
  };
  struct ChunkState {
    uint32_t steps_left = 0;
    std::vector<uint32_t> waits_for;  // by step: how many others
    std::vector<bool> receive_posted;
  };
  struct Message {
    uint32_t from = 0, to = 0;  // positions
    Piece send, receive;
    uint64_t bytes = 0;
    bool arrived = false;
    simgrid::s4u::CommPtr comm;
  };
  using MessagePtr = std::shared_ptr<Message>;
  struct Rank {
    Program program;
    std::vector<std::vector<uint32_t>> followers;               // by step: those that wait for it
    std::map<std::pair<int32_t, uint32_t>, uint32_t> receives;  // peer and tag -> step
    std::vector<Receiver> receivers;        // in the order in which the program first sends to them
    std::vector<uint32_t> receiver_of;      // by step: index into receivers (sends)
    std::map<uint32_t, ChunkState> chunks;  // in flight
    uint32_t chunks_left = 0;
    std::deque<Piece> ready;
    std::set<std::pair<uint32_t, uint32_t>> local;  // chunk and step of reductions and copies
    // chunk and step of the receive
    std::map<std::pair<uint32_t, uint32_t>, MessagePtr> unexpected;
    bool busy = false;
  };
  using Stream = std::deque<MessagePtr>;  // from one rank to another; the first moves

  static uint32_t receiver_number(std::vector<Receiver>* receivers, int32_t position);
  void start_chunk(uint32_t rank, uint32_t chunk);
  void wake(uint32_t rank);
  void go_on(uint32_t rank);
  void start_step(uint32_t rank, Piece piece);
  void post_receive(uint32_t rank, Piece piece);
  bool post_a_send(uint32_t rank);
  bool work_locally(uint32_t rank);
  void step_done(uint32_t rank, Piece piece);
  void handed_over(const MessagePtr& message);
  void join_stream(const MessagePtr& message);
  void move(const MessagePtr& message);
  void last_byte_left(const MessagePtr& message);
  void arrived(const MessagePtr& message);
  // The rank's processor is taken for so long; then `then` runs.
  void occupy(uint32_t rank, double ns, std::function<void()> then);
  void ended(const simgrid::s4u::Activity& activity);
  uint64_t bytes_of(const Rank& rank, const Operand& operand, uint32_t chunk) const;
  bool nothing(const Rank& rank, const Operand& operand, uint32_t chunk) const;
  uint32_t place(uint32_t position) const;
  simgrid::s4u::Host* host(uint32_t position) const;

  const Platform& platform_;
  const TierTree& tree_;
  const Request& request_;
  const ReplayOptions options_;
  const uint32_t chunks_;
  std::vector<Rank> ranks_;  // by position
  std::map<std::pair<uint32_t, uint32_t>, Stream> streams_;
  std::unordered_map<const simgrid::s4u::Activity*, MessagePtr> moving_;
  // Kept until the next one ends, as SimGrid still uses it then.
  simgrid::s4u::CommPtr last_ended_;
  std::set<uint32_t> woken_;  // ranks to which something happened just now
  double end_s_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace sennit::judge
