// transfers.hpp: large messages of the shm transport, the receiver's side.
//
// Once a receive is posted for what a peer offers, its bytes are exposed where they lie, mapped and
// copied, read with process_vm_readv, or asked for as a stream: the first way that works. Reading
// goes in blocks, so that one progress() call is short and other messages move in between. The
// sender may take its memory back meanwhile: its segment is looked at after reading, before the
// bytes are trusted. Where that does not tell, what was fetched comes once more, as a stream, and
// what was exposed is an error of its message. Threads: the engine's lock.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "transports/matcher.hpp"
#include "transports/segments.hpp"
#include "transports/shm/clock.hpp"
#include "transports/shm/id_table.hpp"
#include "transports/shm/peers.hpp"

namespace sennit::shm {

class Transfers {
 public:
  Transfers(Peers& peers, Matcher& matcher, Returns& returns, Clock& clock)
      : peers_(peers), matcher_(matcher), returns_(returns), clock_(clock) {}

  // Messages from the sender, at the front of its ring; the caller pops them afterwards.
  void take_offer(LocalPeer& p, const Slot& slot);
  void take_fragment(LocalPeer& p, const Slot& slot);
  // A receive was posted, and the offer had come early.
  void take_early(LocalPeer& p, RecvRequest& request, const Arrival& early);
  // What was exposed is not read any more.
  void release(RecvRequest& request);
  // Copies some of what is to be fetched, the oldest first; whether any moved.
  bool fetch_some() { return !fetching_.empty() && fetch_oldest(); }

  // Ends receives from `p` that `which` holds for.
  template <typename Which>
  void hand_back(LocalPeer& p, Which which, const Status& status) {
    p.receiving.take_if(which, [&](RecvRequest& request) {
      std::erase(fetching_, request.scratch[kToken]);
      table_.erase(request.scratch[kToken]);
      returns_.add(request, status);
    });
  }
  // Tests and benchmarks: never read a peer's memory with process_vm_readv.
  void forbid_direct_reads() { direct_reads_ = false; }

  uint64_t exposed() const { return exposed_; }  // messages
  uint64_t exposed_of_devices() const { return exposed_of_devices_; }
  uint64_t mapped_bytes() const { return mapped_bytes_; }
  uint64_t read_bytes() const { return read_bytes_; }

 private:
  // A receive whose bytes are fetched from the peer's memory, or come through the ring.
  struct Transfer {
    RecvRequest* request = nullptr;
    LocalPeer* peer = nullptr;
    uint64_t offer = 0;            // the sender's id
    uint16_t cancelled_count = 0;  // the sender's, as it offered
    uint64_t left = 0;             // bytes
    SegmentCursor target;
    std::vector<RemoteSegment> source;
    size_t source_index = 0;
    uint64_t source_offset = 0;

    void advance_source(size_t bytes);
  };
  enum class Fetched { more, all, cannot, peer_died };
  // What a peer offers, and where it lies there.
  struct Offered {
    uint64_t id = 0;
    uint16_t cancelled_count = 0;
    uint64_t signature = 0, bytes = 0;
    std::span<const RemoteSegment> source;
  };

  void begin(LocalPeer& p, RecvRequest& request, const Offered& offered);
  bool expose(LocalPeer& p, RecvRequest& request, const Offered& offered);
  bool fetch_oldest();
  bool may_read(LocalPeer& p);
  Fetched fetch(Transfer& transfer, size_t limit);
  ssize_t read_block(Transfer& transfer, size_t limit);
  void ask_for_stream(const Transfer& transfer, uint64_t token);
  void start_over(Transfer& transfer, uint64_t token);
  void complete(Transfer& transfer, uint64_t token, bool acknowledged);
  void acknowledge(LocalPeer& p, const RecvRequest& request, uint64_t offer, bool mismatch);

  Peers& peers_;
  Matcher& matcher_;
  Returns& returns_;
  Clock& clock_;
  IdTable<Transfer> table_;        // by token
  std::deque<uint64_t> fetching_;  // tokens, the oldest first
  bool direct_reads_ = true;
  uint64_t exposed_ = 0, exposed_of_devices_ = 0;
  uint64_t mapped_bytes_ = 0;
  uint64_t read_bytes_ = 0;
};

}  // namespace sennit::shm
