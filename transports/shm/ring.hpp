// ring.hpp: a single-producer single-consumer ring in shared memory, and the messages that travel
// in it.
//
// A ring is a header, `slots` cache lines, and a payload area. A message is one slot; up to 24
// bytes travel in the slot itself, so an 8-byte message moves exactly one cache line, published by
// one release store of its stamp. Longer ones lie in the payload area, at a place that both sides
// compute alike. The consumer tells what it consumed only every quarter of the ring. The ring lies
// in the consumer's segment; it may die, and the other side's mapping stays readable and writable.
// Threads: one on each side. Stamps live in slots only, never where user data has been, so that no
// data can look like a stamp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transports/transport.hpp"

namespace sennit::shm {

inline constexpr size_t kLine = 64;
inline constexpr size_t kInlineBytes = 24;
inline constexpr uint32_t kHeldBits = 64;        // of RingHeader::held
inline constexpr uint32_t kControlReserve = 16;  // slots that only control messages may take

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
                  std::atomic<uint64_t>::is_always_lock_free,
              "atomics in shared memory must not hide a lock");

// What a slot holds.
enum class SlotKind : uint8_t {
  eager = 1,  // the message itself
  // "my memory holds it": OfferBody, and a segment table as payload if there is more than one
  offer,
  arena,     // announces a file mapping of the sender: ArenaBody
  want,      // receiver to sender: "I cannot read your memory, send it through the ring": WantBody
  fragment,  // the answer to `want`; token in `signature`
  done,      // receiver to sender: the offer was taken: DoneBody
  exported,  // announces memory of the sender's device: ExportedMemory, as payload
  mapped,    // the answer, once it is: MappedBody
  takes,     // this communicator's messages may be there: its id in `signature`
};

// A message, or a message about messages, as it lies in the ring. All but the stamp is written
// before that is published, and is for the consumer only from then on.
struct alignas(kLine) Slot {
  std::atomic<uint32_t> stamp;  // position + 1 once published
  SlotKind kind;
  uint8_t reserved = 0;
  union {
    uint16_t inline_bytes;     // of an eager message
    uint16_t cancelled_count;  // of an offer: OwnSegment::cancelled_count() as it was made
  };
  uint32_t payload_bytes;
  uint32_t segments;
  Key key;
  uint64_t signature;
  std::byte body[kInlineBytes];
};
static_assert(sizeof(Slot) == kLine);

// What lies in Slot::body of an offer, an arena, a want and a done, and a line of an offer's table.
// `id` is the sender's number of the offer, `token` the receiver's of what it asks for, from
// `offset` on; addresses are those of the sender's process.
struct OfferBody {
  uint64_t bytes, id, address;  // address of the only segment
};
struct ArenaBody {
  uint64_t base, bytes;
  int32_t fd;
  int32_t reserved;
};
struct WantBody {
  uint64_t id, token, offset;
};
struct DoneBody {
  uint64_t id, first_ns;
};
struct RemoteSegment {
  uint64_t address, bytes;
};
struct MappedBody {
  uint64_t begin;
};

// What a ring begins with, on a cache line for each side.
struct RingHeader {
  // Written by the consumer.
  // slots in the low half, payload lines in the high half
  alignas(kLine) std::atomic<uint64_t> consumed;
  // bit comm % kHeldBits: too much arrived early on it, send offers instead
  std::atomic<uint64_t> held;
  // Written by the producer when it claims the ring.
  alignas(kLine) std::atomic<int32_t> sender_plus_one;
};

// The sizes of a ring; all rings of a segment have the same. `largest_payload` is what one message
// may have in the payload area.
struct Geometry {
  uint32_t slots = 0;          // a power of two
  uint32_t payload_bytes = 0;  // a power of two
  size_t ring_bytes() const { return sizeof(RingHeader) + slots * sizeof(Slot) + payload_bytes; }
  uint32_t largest_payload() const { return payload_bytes / 4; }
};

// What both sides need to find their way in a ring.
class RingView {
 public:
  RingView() = default;
  RingView(void* memory, const Geometry& geometry)
      : header_(static_cast<RingHeader*>(memory)),
        slots_(reinterpret_cast<Slot*>(header_ + 1)),
        payload_(reinterpret_cast<std::byte*>(slots_ + geometry.slots)),
        geometry_(geometry) {}
  explicit operator bool() const { return header_ != nullptr; }
  const Geometry& geometry() const { return geometry_; }

 protected:
  // Where `bytes` of payload go when the payload area has been used up to `line`; whole lines,
  // never wrapped.
  uint32_t place(uint32_t line, size_t bytes) const {
    const uint32_t lines = geometry_.payload_bytes / kLine;
    const uint32_t need = static_cast<uint32_t>((bytes + kLine - 1) / kLine);
    const uint32_t at = line & (lines - 1);
    return at + need > lines ? line + (lines - at) : line;
  }
  std::byte* payload_at(uint32_t line) const {
    return payload_ + size_t{line & (geometry_.payload_bytes / kLine - 1)} * kLine;
  }

  RingHeader* header_ = nullptr;
  Slot* slots_ = nullptr;
  std::byte* payload_ = nullptr;
  Geometry geometry_;
  uint32_t position_ = 0;  // of the next slot
  uint32_t line_ = 0;      // of the next payload
};

// The sender's side of a ring, in the receiver's segment. One per ring, and one thread at a time.
class Producer : public RingView {
 public:
  using RingView::RingView;
  struct Reserved {
    Slot* slot = nullptr;  // nullptr: the ring is full
    std::byte* payload = nullptr;
  };
  // Room for one message; fill in everything but the stamp, then publish(). Nothing in between.
  Reserved reserve(size_t payload_bytes, bool control) {
    const uint32_t start = payload_bytes ? place(line_, payload_bytes) : line_;
    const uint32_t end = start + static_cast<uint32_t>((payload_bytes + kLine - 1) / kLine);
    if (!fits(end, control)) {
      consumed_ = header_->consumed.load(std::memory_order_acquire);
      if (!fits(end, control)) return {};
    }
    line_ = end;
    return {&slots_[position_ & (geometry_.slots - 1)], payload_at(start)};
  }
  void publish(Slot* slot) { slot->stamp.store(++position_, std::memory_order_release); }
  bool held(uint32_t comm) const {
    return header_->held.load(std::memory_order_relaxed) >> (comm % kHeldBits) & 1;
  }

 private:
  bool fits(uint32_t end_line, bool control) const {
    const uint32_t slots_used = position_ - static_cast<uint32_t>(consumed_);
    const uint32_t lines_used = end_line - static_cast<uint32_t>(consumed_ >> 32);
    return slots_used + (control ? 0 : kControlReserve) < geometry_.slots &&
           lines_used <= geometry_.payload_bytes / kLine;
  }
  uint64_t consumed_ = 0;
};

// The receiver's side of a ring, in its own segment. One per ring, and one thread at a time.
class Consumer : public RingView {
 public:
  using RingView::RingView;
  // The next message, which stays in place until pop(); nullptr: nothing has come.
  const Slot* peek() const {
    const Slot* slot = &slots_[position_ & (geometry_.slots - 1)];
    return slot->stamp.load(std::memory_order_acquire) == position_ + 1 ? slot : nullptr;
  }
  const std::byte* payload(const Slot& slot) const {
    return payload_at(place(line_, slot.payload_bytes));
  }
  void pop(const Slot& slot) {
    if (slot.payload_bytes)
      line_ = place(line_, slot.payload_bytes) +
              static_cast<uint32_t>((slot.payload_bytes + kLine - 1) / kLine);
    position_++;
    if (position_ - told_position_ >= geometry_.slots / 4 ||
        line_ - told_line_ >= geometry_.payload_bytes / kLine / 4)
      tell();
  }
  void set_held(uint32_t comm, bool held) {
    const uint64_t bit = uint64_t{1} << (comm % kHeldBits);
    if (held)
      header_->held.fetch_or(bit, std::memory_order_relaxed);
    else
      header_->held.fetch_and(~bit, std::memory_order_relaxed);
  }

 private:
  void tell() {
    header_->consumed.store(uint64_t{line_} << 32 | position_, std::memory_order_release);
    told_position_ = position_;
    told_line_ = line_;
  }
  uint32_t told_position_ = 0;
  uint32_t told_line_ = 0;
};

}  // namespace sennit::shm
