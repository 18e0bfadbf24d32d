// small.cpp: see transports/shm/small.hpp.
#include "transports/shm/small.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "transports/segments.hpp"

namespace sennit::shm {
namespace {

// per (communicator, peer), beyond what fits into the ring
constexpr size_t kEarlyWindowBytes = 64 << 10;
constexpr size_t kEarlyOverheadBytes = 128;  // what one early message costs besides its bytes

// Communicators that share a bit of RingHeader::held.
bool same_bit(uint32_t a, uint32_t b) { return a % kHeldBits == b % kHeldBits; }

}  // namespace

bool SmallMessages::send(LocalPeer& p, SendRequest& request) {
  std::byte* to = nullptr;
  Slot* const slot = begin(p, request.key, request.signature, request.bytes, &to);
  if (!slot) return false;
  for (const Segment& segment : request.segments) {
    if (segment.bytes) std::memcpy(to, segment.data, segment.bytes);
    to += segment.bytes;
  }
  p.out.publish(slot);
  sent_++;
  returns_.add(request);
  return true;
}

void SmallMessages::take(LocalPeer& p, const Slot& slot) {
  const std::span<const std::byte> data = bytes_of(p, slot);
  RecvRequest* request = matcher_.take_receive(p.rank, slot.key);
  if (!request) return keep_early(p, slot, data);
  p.posted--;
  // What lies in the slot is complete the moment it is seen.
  if (slot.payload_bytes > 0) request->ready_ns = request->first_ns = clock_.now();
  if (check_match(*request, slot.signature, data.size())) {
    if (request->segments.size() == 1 && !data.empty())
      std::memcpy(request->segments[0].data, data.data(), data.size());
    else
      SegmentCursor(request->segments).put(data.data(), data.size());
  }
  returns_.add_checked(*request);
}

void SmallMessages::keep_early(LocalPeer& p, const Slot& slot, std::span<const std::byte> data) {
  if (peers_.refused(p, slot.key.comm)) return;
  Arrival* early = matcher_.keep(p.rank, slot.key, slot.signature, data.size());
  if (!early)
    return peers_.report(
        p, {SENNIT_LINK_FAILED, fmt::format("shm: rank {} sent the same message twice", p.rank)});
  early->arrived_ns = clock_.now();
  early->data.assign(data.begin(), data.end());
  came_early_++;
  EarlyState& state = p.early_state(slot.key.comm);
  state.early_bytes += data.size() + kEarlyOverheadBytes;
  if (state.early_bytes <= kEarlyWindowBytes || state.held) return;
  state.held = true;
  p.in.set_held(slot.key.comm, true);
}

void SmallMessages::take_early(LocalPeer& p, RecvRequest& request, const Arrival& early) {
  if (check_match(request, early.signature, early.bytes)) {
    request.first_ns = early.arrived_ns;
    SegmentCursor(request.segments).put(early.data.data(), early.bytes);
  }
  early_taken(p, request.key.comm, early.bytes);
  returns_.add_checked(request);
}

void SmallMessages::early_taken(LocalPeer& p, uint32_t comm, size_t bytes) {
  EarlyState& state = p.early_state(comm);
  state.early_bytes -= bytes + kEarlyOverheadBytes;
  if (state.held && state.early_bytes < kEarlyWindowBytes / 2) {
    state.held = false;
    const bool shared_bit = std::any_of(
        p.comms.begin(), p.comms.end(),
        [comm](const EarlyState& other) { return other.held && same_bit(other.comm, comm); });
    if (!shared_bit) p.in.set_held(comm, false);
  }
  p.forget_if_idle(state);
}

Now SmallMessages::send_now(const SmallMessage& message) {
  LocalPeer& p = peers_.at(message.peer);
  if (!p.out || !p.waiting.empty() || !takes(p, message.key.comm, message.bytes)) [[unlikely]]
    return Now::never;
  if (peers_.refused(p, message.key.comm)) [[unlikely]]
    return Now::never;
  std::byte* to = nullptr;
  Slot* const slot = begin(p, message.key, message.signature, message.bytes, &to);
  if (!slot) return Now::never;
  if (message.bytes) std::memcpy(to, message.data, message.bytes);
  p.out.publish(slot);
  sent_++;
  return Now::done;
}

// The message came while others were looked for.
Now SmallMessages::take_early_now(LocalPeer& p, const SmallMessage& message, Arrival& early) {
  if (is_offer(early) || early.bytes != message.bytes || early.signature != message.signature)
    return Now::never;
  if (early.bytes) std::memcpy(message.data, early.data.data(), early.bytes);
  matcher_.take_arrival(message.peer, message.key);
  early_taken(p, message.key.comm, early.bytes);
  matcher_.recycle(&early);
  return Now::done;
}

}  // namespace sennit::shm
