// now.cpp: the short way of small messages of the shm transport: straight into the peer's ring, and
// straight out of our own into the caller's memory. See transports/shm/shm.hpp and
// Transport::send_now. Cost: one cache line each way up to 24 bytes; neither a request nor the
// matcher is involved, unless the message was taken out of the ring before.
#include "transports/shm/shm.hpp"

namespace sennit::shm {

Now ShmTransport::send_now(const SmallMessage& message) {
  Peer& p = peer(message.peer);
  if (!p.out || !p.waiting.empty() || message.bytes > p.eager_bytes) [[unlikely]]
    return Now::never;
  if (refused(p, message.key.comm) || p.out.held(message.key.comm)) [[unlikely]]
    return Now::never;
  const bool fits_inline = message.bytes <= kInlineBytes;
  const Producer::Place place = p.out.reserve(fits_inline ? 0 : message.bytes, false);
  if (!place.slot) return Now::never;
  Slot& slot = *place.slot;
  slot.kind = Kind::eager;
  slot.inline_bytes = static_cast<uint16_t>(fits_inline ? message.bytes : 0);
  slot.payload_bytes = static_cast<uint32_t>(fits_inline ? 0 : message.bytes);
  slot.key = message.key;
  slot.signature = message.signature;
  if (message.bytes)
    std::memcpy(fits_inline ? slot.body : place.payload, message.data, message.bytes);
  p.out.publish(&slot);
  count_.eager++;
  return Now::done;
}

Now ShmTransport::recv_now(const SmallMessage& message) {
  Peer& p = peer(message.peer);
  if (matcher_.waiting() > 0) [[unlikely]]
    if (Arrival* early = matcher_.find_arrival(message.peer, message.key))
      return take_arrival_now(p, message, *early);
  if (!p.in) [[unlikely]]
    find_rings();
  if (!p.in || refused(p, message.key.comm)) [[unlikely]]
    return Now::never;
  while (const Slot* slot = p.in.peek()) {
    if (slot->key == message.key && (slot->kind == Kind::eager || slot->kind == Kind::offer)) {
      const bool fits_inline = slot->payload_bytes == 0;
      const size_t bytes = fits_inline ? slot->inline_bytes : slot->payload_bytes;
      if (slot->kind != Kind::eager || bytes != message.bytes ||
          slot->signature != message.signature)
        return Now::never;
      if (bytes) std::memcpy(message.data, fits_inline ? slot->body : p.in.payload(*slot), bytes);
      p.in.pop(*slot);
      return Now::done;
    }
    clock_ns_ = 0;
    take(p, *slot);
    p.in.pop(*slot);
  }
  return Now::later;
}

// The message came while others were looked for.
Now ShmTransport::take_arrival_now(Peer& p, const SmallMessage& message, Arrival& early) {
  const bool offer = early.handle[0] != 0;
  if (offer || early.bytes != message.bytes || early.signature != message.signature)
    return Now::never;
  if (early.bytes) std::memcpy(message.data, early.data.data(), early.bytes);
  matcher_.take_arrival(message.peer, message.key);
  early_taken(p, message.key.comm, early.bytes);
  matcher_.recycle(&early);
  return Now::done;
}

}  // namespace sennit::shm
