// offers.cpp: see transports/shm/offers.hpp.
#include "transports/shm/offers.hpp"

#include <algorithm>

#include "transports/segments.hpp"

namespace sennit::shm {

// Announces arenas that the peer has not heard of; false: the ring is full.
bool Offers::tell_arenas(LocalPeer& p) {
  for (; p.arenas_told < arenas_.all().size(); p.arenas_told++) {
    const Arena& arena = *arenas_.all()[p.arenas_told];
    const ArenaBody body{reinterpret_cast<uint64_t>(arena.data()), arena.bytes(), arena.fd(), 0};
    if (!p.push_control(SlotKind::arena, false, arena.inode(), &body, sizeof body)) return false;
  }
  return true;
}

bool Offers::send(LocalPeer& p, SendRequest& request) {
  if (!tell_arenas(p)) return false;
  located_.clear();
  for (const Segment& segment : request.segments) registered_.locate(segment, &located_);
  uint32_t count = static_cast<uint32_t>(located_.size());
  if (count * sizeof(RemoteSegment) > p.out.geometry().largest_payload()) count = kNotReadable;
  const bool table = count > 1 && count != kNotReadable;
  const size_t table_bytes = table ? count * sizeof(RemoteSegment) : 0;
  const Producer::Reserved place = p.out.reserve(table_bytes, false);
  if (!place.slot) return false;
  request.scratch[kId] = ids_.insert(&request);
  Slot& slot = *place.slot;
  slot.kind = SlotKind::offer;
  slot.payload_bytes = static_cast<uint32_t>(table_bytes);
  slot.segments = count;
  slot.cancelled_count = peers_.own().cancelled_count();
  slot.key = request.key;
  slot.signature = request.signature;
  const uint64_t address = count == 1 ? located_[0].address : 0;
  const OfferBody body{request.bytes, request.scratch[kId], address};
  std::memcpy(slot.body, &body, sizeof body);
  if (table) std::memcpy(place.payload, located_.data(), table_bytes);
  p.out.publish(&slot);
  p.offered.push_back(request);
  peers_.activate(p);
  return true;
}

bool Offers::reads(std::span<const std::byte> memory) const {
  bool found = false;
  peers_.each([&](const LocalPeer& p) {
    for (const SendRequest* request = p.offered.front(); request;
         request = p.offered.after(request))
      for (const Segment& segment : request->segments)
        found |= segment.data < memory.data() + memory.size() &&
                 segment.data + segment.bytes > memory.data();
  });
  return found;
}

void Offers::take_done(LocalPeer& p, const Slot& slot) {
  DoneBody body;
  std::memcpy(&body, slot.body, sizeof body);
  SendRequest** found = ids_.find(body.id);
  if (!found) return;  // cancelled meanwhile
  SendRequest& request = **found;
  ids_.erase(body.id);
  p.offered.remove(request);
  request.ready_ns = request.first_ns = body.first_ns;
  const bool mismatch = slot.segments;
  returns_.add(request, mismatch ? send_mismatch(request, slot.signature) : Status());
}

void Offers::take_want(LocalPeer& p, const Slot& slot) {
  WantBody body;
  std::memcpy(&body, slot.body, sizeof body);
  SendRequest** found = ids_.find(body.id);
  if (!found) return;
  SendRequest& request = **found;
  if (request.exported) {  // the processor cannot read it
    ids_.erase(body.id);
    p.offered.remove(request);
    return returns_.add(request, {SENNIT_INTERNAL,
                                  "shm: a peer wants what lies in a device's "
                                  "memory, which it said it has mapped"});
  }
  request.scratch[kToken] = body.token;
  request.scratch[kOffset] = body.offset;
  request.ready_ns = request.first_ns = clock_.now();
  p.offered.remove(request);
  p.streaming.push_back(request);
}

bool Offers::stream(LocalPeer& p) {
  bool moved = false;
  while (!p.streaming.empty()) {
    SendRequest& request = *p.streaming.front();
    const size_t bytes = std::min<size_t>(p.out.geometry().largest_payload(),
                                          request.bytes - request.scratch[kOffset]);
    const Producer::Reserved place = p.out.reserve(bytes, false);
    if (!place.slot) return moved;
    SegmentCursor source(request.segments);
    source.advance(request.scratch[kOffset]);
    source.get(place.payload, bytes);
    place.slot->kind = SlotKind::fragment;
    place.slot->payload_bytes = static_cast<uint32_t>(bytes);
    place.slot->signature = request.scratch[kToken];
    p.out.publish(place.slot);
    moved = true;
    request.scratch[kOffset] += bytes;
    streamed_bytes_ += bytes;
    if (request.scratch[kOffset] < request.bytes) continue;
    p.streaming.remove(request);
    ids_.erase(request.scratch[kId]);
    returns_.add(request);
  }
  return moved;
}

}  // namespace sennit::shm
