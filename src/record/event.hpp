// event.hpp: one thing that a rank did: a step of a call that has ended, or a call's begin or end;
// or that it waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace sennit {

// The first four are those of StepKind. stall: nothing has moved in a call since `last` ago.
enum class EventKind : uint8_t { send, recv, reduce, copy, call_begin, call_end, stall };

// Bits of TraceEvent::flags.
inline constexpr uint8_t kEventFailed = 1;        // call_end: with an error
inline constexpr uint8_t kEventPointToPoint = 2;  // of a send or receive, not of a collective
inline constexpr uint8_t kEventReceiving = 4;     // call_begin and call_end of a receive
inline constexpr uint8_t kEventKnowsItsWait = 8;  // sender_waited_us is filled
inline constexpr uint8_t kEventInPlace = 16;      // of a begin: input and output are one memory
inline constexpr uint8_t kEventAwaited = 32;      // of a begin and a stall: somebody waits for it

// Reductions and copies of so few bytes may be left out: they take less time than to record them.
inline constexpr uint64_t kLeastRecordedLocalBytes = 257;

// As it lies in a recording. Times that are not of a clock count from `posted_ns`, in units of
// 2^scale ns: after() gives nanoseconds, set_times() takes them.
struct alignas(64) TraceEvent {
  uint32_t comm = 0, seq = 0;  // which call: of a message, its number between its two ranks
  uint32_t chunk = 0;          // of a begin, with `step`: set_plan()
  uint32_t step = 0;           // of the plan's program
  int32_t peer = -1;           // world rank; -1: none, or not known yet
  EventKind kind = EventKind::send;
  uint8_t tier = 0;  // that the message crosses
  uint8_t flags = 0;
  uint8_t scale = 0;       // 0 where it took less than four seconds
  uint32_t bytes = 0;      // saturates; of a begin: of a send or a receive
  uint32_t ready = 0;      // peer known ready
  uint32_t first = 0;      // first byte
  uint32_t last = 0;       // it was done; of an end: how long the call took
  uint64_t posted_ns = 0;  // CLOCK_MONOTONIC: could begin; of a begin or an end, that
  uint32_t tag = 0;        // of the message, with which both its ends name it
  // Of a send: when the transport took it; before, it stood in the executor's own queue.
  uint32_t handed = 0;
  // Of a receive: how long its sender had it ready when its first byte left, where the transport
  // tells (kEventKnowsItsWait).
  uint32_t sender_waited_us = 0;
  uint32_t sender_clock_us = 0;  // and the sender's clock then, modulo 2^32

  // Of a begin: Plan::hash; 0 of a send or a receive.
  void set_plan(uint64_t hash) {
    chunk = static_cast<uint32_t>(hash >> 32);
    step = static_cast<uint32_t>(hash);
  }
  uint64_t plan() const { return uint64_t{chunk} << 32 | step; }
  // Nanoseconds, since it was posted.
  struct Times {
    uint64_t ready_ns = 0, first_ns = 0, last_ns = 0, handed_ns = 0;
  };
  void set_times(const Times& times) {
    const uint64_t longest =
        std::max({times.ready_ns, times.first_ns, times.last_ns, times.handed_ns});
    scale = static_cast<uint8_t>(std::max(0, static_cast<int>(std::bit_width(longest)) - 32));
    ready = static_cast<uint32_t>(times.ready_ns >> scale);
    first = static_cast<uint32_t>(times.first_ns >> scale);
    last = static_cast<uint32_t>(times.last_ns >> scale);
    handed = static_cast<uint32_t>(times.handed_ns >> scale);
  }
  uint64_t after(uint32_t time) const { return static_cast<uint64_t>(time) << scale; }
  // By the clock of posted_ns.
  uint64_t handed_at() const { return posted_ns + after(handed); }
  uint64_t first_at() const { return posted_ns + after(first); }
  uint64_t ended_at() const { return posted_ns + after(last); }
  bool is(uint8_t flag) const { return (flags & flag) != 0; }
  bool is_step() const { return kind <= EventKind::copy; }
  bool is_message() const { return kind == EventKind::send || kind == EventKind::recv; }
};
static_assert(sizeof(TraceEvent) == 64);

}  // namespace sennit
