// send_queue.hpp: what an execution has to send to one peer: the most urgent first, and no more
// under way than keeps the wire busy, so that a deep queue never delays the flow that matters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/plan.hpp"

namespace sennit {

// A send whose dependencies are done.
struct ReadySend {
  uint32_t lane = 0, step = 0;
  size_t bytes = 0;
};

// Each send goes through it once: push(), take() when there is room for it, done() when the
// transport is through with it. Not thread-safe. Cost: a heap operation a send; nothing is
// allocated once the heap has grown.
class SendQueue {
 public:
  // Of the widest tier first, then of the lowest chunk, then the first step.
  void push(const ReadySend& send, uint8_t tier, uint32_t chunk) {
    heap_.push_back({order_of(tier, chunk, send.step), send});
    std::push_heap(heap_.begin(), heap_.end());
  }
  bool empty() const { return heap_.empty(); }

  // The next to be sent, which counts as under way from now on. Nothing where there is none, or
  // where with it more than `limit` bytes would be under way; a few messages may be, however large.
  std::optional<ReadySend> take(size_t limit) {
    if (heap_.empty()) return {};
    const ReadySend next = heap_.front().send;
    if (in_flight_ >= kMessagesInFlight && bytes_in_flight_ + next.bytes > limit) return {};
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    in_flight_++;
    bytes_in_flight_ += next.bytes;
    return next;
  }
  // One that was taken is no longer under way.
  void done(size_t bytes) {
    in_flight_--;
    bytes_in_flight_ -= bytes;
  }
  // A new call begins.
  void clear() {
    heap_.clear();
    bytes_in_flight_ = 0;
    in_flight_ = 0;
  }

 private:
  // However large, this many messages may be under way: the wire never falls idle between them.
  static constexpr uint32_t kMessagesInFlight = 2;

  struct OrderedSend {
    uint64_t order;  // smaller goes first
    ReadySend send;
    bool operator<(const OrderedSend& other) const { return order > other.order; }  // a max-heap's
  };
  static uint64_t order_of(uint8_t tier, uint32_t chunk, uint32_t step) {
    constexpr int kStepBits = 28;
    constexpr int kChunkBits = 28;
    static_assert(kMostChunks <= 1u << kChunkBits);
    return (static_cast<uint64_t>(UINT8_MAX - tier) << (kChunkBits + kStepBits)) |
           (static_cast<uint64_t>(chunk) << kStepBits) | (step & ((1u << kStepBits) - 1));
  }

  std::vector<OrderedSend> heap_;
  size_t bytes_in_flight_ = 0;
  uint32_t in_flight_ = 0;
};

}  // namespace sennit
