// device_exports.cpp: see transports/shm/device_exports.hpp.
#include "transports/shm/device_exports.hpp"

#include <cstring>

namespace sennit::shm {

// A driver maps no memory of its own process, and a peer in another PID namespace may be anybody.
bool DeviceExports::reaches(int peer) const {
  const LocalPeer* const p = peers_.find(peer);
  return p && p->failed.ok() && p->segment && p->same_pid_namespace &&
         p->address.process != this_process();
}

bool DeviceExports::is_mapped(int peer, uint32_t comm, const ExportedMemory& memory) {
  if (!reaches(peer)) return false;
  LocalPeer& p = peers_.at(peer);
  peers_.activate(p);  // its answer may have come
  if (!p.exports.was_told(memory) && tell(p, memory)) p.exports.told(memory);
  return p.exports.reads(memory, comm);
}

void DeviceExports::takes(int peer, uint32_t comm) {
  if (!reaches(peer)) return;
  LocalPeer& p = peers_.at(peer);
  if (!p.exports.has_to_tell(comm) || !p.out) return;
  p.exports.told_takes(comm);
  p.post_control(SlotKind::takes, false, comm, MappedBody{});
  peers_.activate(p);
}

void DeviceExports::take_takes(LocalPeer& p, const Slot& slot) {
  p.exports.takes(static_cast<uint32_t>(slot.signature));
}

void DeviceExports::forget(const std::function<bool(uint32_t comm)>& over) {
  peers_.each([&](LocalPeer& p) { p.exports.forget(over); });
}

// False: there is no room in the ring.
bool DeviceExports::tell(LocalPeer& p, const ExportedMemory& memory) {
  if (!p.out && !peers_.claim_ring(p).ok()) return false;
  const Producer::Reserved place = p.out.reserve(sizeof memory, true);
  if (!place.slot) return false;
  place.slot->kind = SlotKind::exported;
  place.slot->payload_bytes = sizeof memory;
  std::memcpy(place.payload, &memory, sizeof memory);
  p.out.publish(place.slot);
  return true;
}

void DeviceExports::take_exported(LocalPeer& p, const Slot& slot) {
  ExportedMemory memory;
  std::memcpy(&memory, p.in.payload(slot), sizeof memory);
  p.exports.add(memory);
  unanswered_++;
}

std::vector<PeerMemory> DeviceExports::unanswered() const {
  std::vector<PeerMemory> all;
  if (unanswered_ == 0) return all;
  peers_.each([&](const LocalPeer& p) {
    if (p.failed.ok()) p.exports.append_unanswered(p.rank, &all);
  });
  return all;
}

bool DeviceExports::answer(const PeerMemory& memory, std::byte* here) {
  LocalPeer& p = peers_.at(memory.peer);
  if (!p.exports.answer(memory.memory, here)) return false;
  unanswered_--;
  if (!here || !reaches(p.rank) || (!p.out && !peers_.claim_ring(p).ok())) return true;
  p.post_control(SlotKind::mapped, false, 0,
                 MappedBody{reinterpret_cast<uint64_t>(memory.memory.begin)});
  peers_.activate(p);
  return true;
}

void DeviceExports::take_mapped(LocalPeer& p, const Slot& slot) {
  MappedBody body;
  std::memcpy(&body, slot.body, sizeof body);
  p.exports.mapped(reinterpret_cast<const std::byte*>(body.begin));
}

}  // namespace sennit::shm
