// shm.hpp: the transport between processes of one host.
//
// Small messages are copied through a ring (transports/shm/ring.hpp). For a large one the sender
// offers its memory and the receiver takes it, by the first way that works: memory from allocate(),
// or registered, is mapped and read in place or exposed (transports/shm/arena.hpp,
// transports/shm/registered.hpp); any memory with process_vm_readv, in blocks; where that is
// forbidden, the sender streams it through the ring. A communicator whose early messages fill its
// window at a peer sends offers only, until they are drained, so it blocks no other. A peer's death
// is seen through a pidfd, looked at ten times a second. Cost: progress() looks at one cache line
// for each peer that something is expected from.
#pragma once

#include <unordered_map>

#include "transports/matcher.hpp"
#include "transports/shm/peer.hpp"
#include "transports/shm/registered.hpp"

namespace sennit::shm {

class ShmTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> make(const TransportContext& context);
  ~ShmTransport() override;

  std::string_view name() const override { return "shm"; }
  std::vector<std::byte> address() const override;
  Reach reach(int peer, std::span<const std::byte> address) override;
  std::string obstacle() const override { return obstacle_; }
  Status add_peer(int peer, std::span<const std::byte> address) override;
  void send(SendRequest& request) override;
  void recv(RecvRequest& request) override;
  void release(RecvRequest& request) override;
  bool progress(Completions& completions) override;
  size_t now_bytes() const override { return context_.eager_bytes; }
  Now send_now(const SmallMessage& message) override;
  Now recv_now(const SmallMessage& message) override;
  void fail_peer(int peer, const Status& status) override;
  void cancel(uint32_t comm, const Status& status) override;
  void forget(const std::function<bool(uint32_t comm)>& over) override;
  void* allocate(size_t bytes) override { return arenas_.allocate(bytes); }
  bool free(void* memory) override { return arenas_.free(memory); }
  Status register_memory(void* memory, size_t bytes) override {
    return registered_.add(memory, bytes);
  }
  Status deregister_memory(void* memory) override;
  std::string statistics() const override;

  // Tests and benchmarks: never read a peer's memory with process_vm_readv; stream through the
  // ring.
  void forbid_direct_reads() { direct_reads_ = false; }

 private:
  explicit ShmTransport(const TransportContext& context) : context_(context) {}

  // transports/shm/shm.cpp: peers and small messages
  Peer& peer(int rank);
  Peer* open_peer(int rank, std::span<const std::byte> address);
  bool has_ring_here(int rank) const;
  void activate(Peer& p);
  const Status* refused(const Peer& p, uint32_t comm) const;
  Status claim_ring(Peer& p);
  void find_rings();
  bool try_send(Peer& p, SendRequest& request);
  bool send_eager(Peer& p, SendRequest& request);
  bool poll(Peer& p);
  void take(Peer& p, const Slot& slot);
  void take_eager(Peer& p, const Slot& slot);
  void keep_early(Peer& p, const Slot& slot, std::span<const std::byte> data);
  void early_taken(Peer& p, uint32_t comm, size_t bytes);
  template <typename Which>
  void drop_arrivals(Which which);
  void finish(SendRequest& request, Status status);
  void finish(RecvRequest& request, Status status);
  template <typename Which>
  void hand_back(Peer& p, Which which, const Status& status);
  uint64_t now();
  // transports/shm/now.cpp: the short way of small messages
  Now take_arrival_now(Peer& p, const SmallMessage& message, Arrival& early);
  // transports/shm/watch.cpp: life and death of peers
  void tick();
  bool is_dead(Peer& p);
  void report(Peer& p, Status status);
  // transports/shm/large.cpp: offers, fetching, streaming
  bool send_offer(Peer& p, SendRequest& request);
  bool push_control(Peer& p, Kind kind, bool flag, uint64_t signature, const void* body,
                    size_t bytes);
  bool flush_control(Peer& p);
  void take_offer(Peer& p, const Slot& slot);
  void begin(Peer& p, RecvRequest& request, uint64_t offer, uint64_t signature, uint64_t bytes,
             std::span<const RemoteSegment> source);
  void take_done(Peer& p, const Slot& slot);
  void take_want(Peer& p, const Slot& slot);
  void take_fragment(Peer& p, const Slot& slot);
  bool stream(Peer& p);
  bool may_read(Peer& p);
  bool fetch_some();
  enum class Fetched { more, all, cannot, peer_died };
  Fetched fetch(Transfer& transfer, size_t limit);
  void ask_for_stream(Transfer& transfer, uint64_t token);
  void complete(Transfer& transfer, uint64_t token, bool acknowledged);
  void acknowledge(Peer& p, const RecvRequest& request, uint64_t offer, bool mismatch);

  TransportContext context_;
  std::unique_ptr<OwnSegment> own_;
  Arenas arenas_;
  Registrations registered_{arenas_};
  std::vector<RemoteSegment> offered_;  // send_offer()'s, kept for its capacity
  // by world rank; null: not local or not asked about yet
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<bool> asked_;
  int asked_count_ = 0;
  std::string obstacle_;         // to the last peer that was not reached
  uint32_t reached_ = 0;         // peers whose segments are mapped here
  uint32_t rings_examined_ = 0;  // of our segment: all below have been given to their peer
  std::vector<Peer*> active_;    // those that something is expected from
  Matcher matcher_;
  IdTable<SendRequest*> offers_;
  IdTable<Transfer> transfers_;
  std::deque<uint64_t> fetching_;  // transfers, the oldest first
  std::unordered_map<uint32_t, Status> cancelled_;
  std::vector<SendRequest*> done_sends_;
  std::vector<RecvRequest*> done_receives_;
  std::vector<PeerEvent> events_;
  bool direct_reads_ = true;
  uint64_t clock_ns_ = 0;  // this progress() call's; 0: not read yet
  uint32_t calls_ = 0;
  uint64_t next_check_ms_ = 0;
  struct {
    uint64_t eager = 0, exposed = 0, mapped_bytes = 0, read_bytes = 0, streamed_bytes = 0,
             early = 0;
  } count_;
};

}  // namespace sennit::shm
