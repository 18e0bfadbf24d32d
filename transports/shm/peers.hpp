// peers.hpp: a rank's local peers: opened, their rings, whom to look at, and whether they live.
//
// Shared memory has no end of file. So ten times a second, and only for peers that something is
// expected from, a pidfd is polled; it is readable once the process has exited, reaped or not.
// Where there is no pidfd, /proc is read. Peers in another PID namespace cannot be watched: for
// them the control plane's sockets decide. Threads: the engine's lock.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transports/cancelled.hpp"
#include "transports/returns.hpp"
#include "transports/shm/local_peer.hpp"

namespace sennit::shm {

class Peers {
 public:
  // What is seen of peers goes to `returns`.
  Peers(const TransportContext& context, std::unique_ptr<OwnSegment> own, Returns& returns);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  OwnSegment& own() { return *own_; }
  const OwnSegment& own() const { return *own_; }
  bool is_forked() const;  // this is a child's copy: nothing here is its own

  // The peer with this address; nullptr where it is not to be reached, and obstacle() says why: its
  // own end says the same. SENNIT_OUT_OF_RESOURCES where it is only this process that lacks
  // something; another call tries again.
  Result<LocalPeer*> open(int rank, std::span<const std::byte> address);
  const std::string& obstacle() const { return obstacle_; }
  LocalPeer& at(int rank) {  // opened before
    SENNIT_CHECK(find(rank) != nullptr);
    return *peers_[static_cast<size_t>(rank)];
  }
  LocalPeer* find(int rank) const {
    return rank >= 0 && rank < size_ ? peers_[static_cast<size_t>(rank)].get() : nullptr;
  }
  template <typename Function>
  void each(Function function) const {
    for (const std::unique_ptr<LocalPeer>& p : peers_)
      if (p) function(*p);
  }

  // Those that something is expected from: progress() looks at them, and takes out who is no longer
  // busy.
  std::vector<LocalPeer*>& active() { return active_; }
  void activate(LocalPeer& p) {
    if (p.active) return;
    p.active = true;
    active_.push_back(&p);
  }

  // A ring in the peer's segment, for what is sent to it.
  Status claim_ring(LocalPeer& p);
  // Gives rings that peers have claimed in our segment to those peers.
  void find_rings();

  // The status that requests of this peer and communicator end with at once, or nullptr.
  const Status* refused(const LocalPeer& p, uint32_t comm) const {
    return p.failed.ok() ? cancelled_.find(comm) : &p.failed;
  }
  // False: it was cancelled before. Peers that read this rank's memory see it in the segment.
  bool cancel(uint32_t comm, const Status& status);
  void forget(const std::function<bool(uint32_t comm)>& over) { cancelled_.forget(over); }

  // Says once that something is wrong with a peer.
  void report(LocalPeer& p, Status status);
  void report_death(LocalPeer& p);
  // Looks after names and the dead, ten times a second at most; between, it only reads a clock.
  void tick();

 private:
  bool shares_host(const SegmentAddress& address);
  bool has_ring_here(int rank) const;
  bool is_dead(LocalPeer& p);
  void remove_own_name();
  bool all_have_mapped(const SegmentHeader& header) const;

  const int rank_, size_, local_ranks_;
  const size_t eager_bytes_;
  Returns& returns_;
  std::unique_ptr<OwnSegment> own_;
  // by world rank; null: not local or not asked about yet
  std::vector<std::unique_ptr<LocalPeer>> peers_;
  std::string obstacle_;         // to the last peer that was not reached
  uint32_t rings_examined_ = 0;  // of our segment: all below have been given to their peer
  std::vector<LocalPeer*> active_;
  Cancelled cancelled_;
  uint64_t next_check_ms_ = 0;
};

}  // namespace sennit::shm
