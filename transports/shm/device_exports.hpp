// device_exports.hpp: memory of devices that peers read in place: who has told whom, and who has
// mapped it.
//
// The processor touches none of it. A rank whose device exports memory tells a peer, which answers
// once its device has mapped it; from then on messages to that peer may lie there, as offers
// (transports/shm/offers.hpp) that are exposed. What the peer never maps is never sent so. Threads:
// the engine's lock.
#pragma once

#include <vector>

#include "transports/shm/peers.hpp"

namespace sennit::shm {

class DeviceExports {
 public:
  explicit DeviceExports(Peers& peers) : peers_(peers) {}

  // As the Transport's.
  bool exposes(int peer) const { return reaches(peer) && peers_.at(peer).exports.may_read(); }
  bool reads(int peer) const { return reaches(peer) && peers_.at(peer).exports.some_is_here(); }
  bool is_mapped(int peer, uint32_t comm, const ExportedMemory& memory);
  void takes(int peer, uint32_t comm);
  void forget(const std::function<bool(uint32_t comm)>& over);
  std::vector<PeerMemory> unanswered() const;
  bool answer(const PeerMemory& memory, std::byte* here);

  // Messages from the peer.
  void take_exported(LocalPeer& p, const Slot& slot);
  void take_mapped(LocalPeer& p, const Slot& slot);
  void take_takes(LocalPeer& p, const Slot& slot);

 private:
  bool reaches(int peer) const;
  bool tell(LocalPeer& p, const ExportedMemory& memory);

  Peers& peers_;
  size_t unanswered_ = 0;
};

}  // namespace sennit::shm
