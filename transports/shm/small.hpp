// small.hpp: small messages of the shm transport, which are copied through a ring, and those of
// them that came before their receive.
#pragma once

#include <span>

#include "transports/matcher.hpp"
#include "transports/shm/clock.hpp"
#include "transports/shm/peers.hpp"

namespace sennit::shm {

// Puts small messages into the rings of peers and takes theirs out of this rank's. What comes early
// is kept, up to a window per (communicator, peer); a communicator that fills it sends offers only
// (transports/shm/offers.hpp), until half of it has been taken. Threads: the engine's lock. Cost:
// one cache line each way up to kInlineBytes.
class SmallMessages {
 public:
  SmallMessages(Peers& peers, Matcher& matcher, Returns& returns, Clock& clock)
      : peers_(peers), matcher_(matcher), returns_(returns), clock_(clock) {}

  // Whether a message of this size on this communicator goes this way now.
  static bool takes(const LocalPeer& p, uint32_t comm, size_t bytes) {
    return bytes <= p.eager_bytes && !p.out.held(comm);
  }
  // False: the ring is full.
  bool send(LocalPeer& p, SendRequest& request);
  // A message at the front of the peer's ring, which the caller pops afterwards.
  void take(LocalPeer& p, const Slot& slot);
  // A receive was posted, and the message had come early.
  void take_early(LocalPeer& p, RecvRequest& request, const Arrival& early);

  // The short way: straight into the peer's ring, and straight out of ours into the caller's
  // memory. Neither a request nor the matcher is involved, unless the message was taken out of the
  // ring before. See Transport::send_now(). `take_other(peer, slot)` takes what lies before it.
  Now send_now(const SmallMessage& message);
  template <typename TakeOther>
  Now recv_now(const SmallMessage& message, TakeOther take_other);

  // Lets go of what came early and `which` holds for, offers as well.
  template <typename Which>
  void drop_early_if(Which which) {
    matcher_.take_arrivals_if(which, [&](Arrival& early) {
      if (!is_offer(early)) early_taken(peers_.at(early.peer), early.key.comm, early.bytes);
      matcher_.recycle(&early);
    });
  }
  static bool is_offer(const Arrival& early) { return early.handle[0] != 0; }

  uint64_t sent() const { return sent_; }
  uint64_t came_early() const { return came_early_; }

 private:
  // Where a small message's bytes lie.
  static std::span<const std::byte> bytes_of(const LocalPeer& p, const Slot& slot) {
    if (slot.payload_bytes == 0) return {slot.body, slot.inline_bytes};
    return {p.in.payload(slot), slot.payload_bytes};
  }
  // Room in the ring, with the slot filled in but for the bytes; nullptr: there is none. The bytes
  // go to `to`, and then the slot is published.
  static Slot* begin(LocalPeer& p, const Key& key, uint64_t signature, size_t bytes,
                     std::byte** to);
  void keep_early(LocalPeer& p, const Slot& slot, std::span<const std::byte> data);
  void early_taken(LocalPeer& p, uint32_t comm, size_t bytes);
  Now take_early_now(LocalPeer& p, const SmallMessage& message, Arrival& early);

  Peers& peers_;
  Matcher& matcher_;
  Returns& returns_;
  Clock& clock_;
  uint64_t sent_ = 0;
  uint64_t came_early_ = 0;
};

inline Slot* SmallMessages::begin(LocalPeer& p, const Key& key, uint64_t signature, size_t bytes,
                                  std::byte** to) {
  const bool fits_inline = bytes <= kInlineBytes;
  const Producer::Reserved place = p.out.reserve(fits_inline ? 0 : bytes, false);
  if (!place.slot) return nullptr;
  Slot& slot = *place.slot;
  slot.kind = SlotKind::eager;
  slot.inline_bytes = static_cast<uint16_t>(fits_inline ? bytes : 0);
  slot.payload_bytes = static_cast<uint32_t>(fits_inline ? 0 : bytes);
  slot.key = key;
  slot.signature = signature;
  *to = fits_inline ? slot.body : place.payload;
  return &slot;
}

template <typename TakeOther>
Now SmallMessages::recv_now(const SmallMessage& message, TakeOther take_other) {
  LocalPeer& p = peers_.at(message.peer);
  if (matcher_.waiting() > 0) [[unlikely]]
    if (Arrival* early = matcher_.find_arrival(message.peer, message.key))
      return take_early_now(p, message, *early);
  if (!p.in) [[unlikely]]
    peers_.find_rings();
  if (!p.in || peers_.refused(p, message.key.comm)) [[unlikely]]
    return Now::never;
  while (const Slot* slot = p.in.peek()) {
    const bool is_message = slot->kind == SlotKind::eager || slot->kind == SlotKind::offer;
    if (slot->key == message.key && is_message) {
      const std::span<const std::byte> bytes = bytes_of(p, *slot);
      if (slot->kind != SlotKind::eager || bytes.size() != message.bytes ||
          slot->signature != message.signature)
        return Now::never;
      if (!bytes.empty()) std::memcpy(message.data, bytes.data(), bytes.size());
      p.in.pop(*slot);
      return Now::done;
    }
    clock_.forget();
    take_other(p, *slot);
    p.in.pop(*slot);
  }
  return Now::later;
}

}  // namespace sennit::shm
