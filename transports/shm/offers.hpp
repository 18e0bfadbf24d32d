// offers.hpp: large messages of the shm transport, the sender's side.
//
// The sender puts an offer into the ring, where the bytes lie, and waits. The receiver takes them
// by itself and answers `done`, or `want`: then the sender streams them through the ring. The
// sender may take its memory back at any time; it notes the communicator in its segment first
// (Peers::cancel), where the receiver looks before it trusts what it read
// (transports/shm/transfers.hpp). Threads: the engine's lock.
#pragma once

#include <vector>

#include "transports/matcher.hpp"
#include "transports/shm/clock.hpp"
#include "transports/shm/id_table.hpp"
#include "transports/shm/peers.hpp"
#include "transports/shm/registered.hpp"

namespace sennit::shm {

// As number of segments in an offer: more than can be listed, so they are not readable.
inline constexpr uint32_t kNotReadable = UINT32_MAX;

class Offers {
 public:
  Offers(Peers& peers, Returns& returns, Clock& clock, const Arenas& arenas,
         Registrations& registered)
      : peers_(peers), returns_(returns), clock_(clock), arenas_(arenas), registered_(registered) {}

  // False: the ring is full.
  bool send(LocalPeer& p, SendRequest& request);
  // Messages from the receiver.
  void take_done(LocalPeer& p, const Slot& slot);
  void take_want(LocalPeer& p, const Slot& slot);
  // Sends the next fragments of what the peer wants through the ring; whether any moved.
  bool stream(LocalPeer& p);

  // Whether a peer may be reading this memory at this moment.
  bool reads(std::span<const std::byte> memory) const;
  // Ends offers to `p` that `which` holds for.
  template <typename Which>
  void hand_back(LocalPeer& p, Which which, const Status& status) {
    const auto back = [&](SendRequest& request) {
      ids_.erase(request.scratch[kId]);
      returns_.add(request, status);
    };
    p.offered.take_if(which, back);
    p.streaming.take_if(which, back);
  }

  uint64_t streamed_bytes() const { return streamed_bytes_; }

 private:
  bool tell_arenas(LocalPeer& p);

  Peers& peers_;
  Returns& returns_;
  Clock& clock_;
  const Arenas& arenas_;
  Registrations& registered_;
  IdTable<SendRequest*> ids_;
  std::vector<RemoteSegment> located_;  // send()'s, kept for its capacity
  uint64_t streamed_bytes_ = 0;
};

}  // namespace sennit::shm
