// news.hpp: what the users of the control plane tell one another over its tree: one rank to the
// coordinator, and the coordinator to all. What it means is theirs. Control thread only.
//
// What comes from below, and may wait, waits a moment for more and goes up in one frame: however
// many ranks talk, each child of a coordinator sends it no more than some fifty of these a second,
// besides what it says itself.
#pragma once

#include <deque>
#include <vector>

#include "control/channels.hpp"
#include "control/messages.hpp"
#include "control/tree/census.hpp"
#include "control/tree/sender.hpp"

namespace sennit::control {

class News {
 public:
  static constexpr int64_t kGatherMs = 20;
  // Bytes that wait; more go up at once. Where there is no parent the oldest are lost.
  static constexpr size_t kMostGathered = 256 * 1024;

  News(Self& self, const Census& census, Sender& sender)
      : self_(self), census_(census), sender_(sender) {}

  // ---- of this rank ----
  // Takes along what waits.
  void tell(uint8_t topic, Blob blob, bool may_wait);
  void announce(uint8_t topic, uint64_t key, const Blob& blob);
  // There is a new parent, or none any more.
  void tell_again();

  // ---- of others ----
  void on_tell(Tell message);
  void on_announce(const Announce& message);
  // To a rank that has just attached, what it may have missed.
  void tell_child(Channels& channels, Channel& channel) const;

  // To the parent, or where this is the coordinator to its user. Where there is no parent it waits
  // for one.
  void pass_on();
  void tick();

 private:
  struct Kept {
    uint8_t topic;
    uint64_t key;
    EncodedFrame frame;
  };
  static constexpr size_t kMostKept = 4096;
  void gather(Tell::Said said);

  Self& self_;
  const Census& census_;
  Sender& sender_;
  std::deque<Tell::Said> gathered_;  // on their way to the coordinator
  size_t gathered_bytes_ = 0;
  bool may_wait_ = true;    // all of them
  int64_t pass_on_ms_ = 0;  // where there are some
  // Of the latest announcement. A coordinator counts from its rank, which is higher than those of
  // the coordinators before it, and the tree keeps the order.
  uint64_t latest_ = 0;
  std::deque<Kept> announced_;  // the latest of each topic and key, in their order
};

}  // namespace sennit::control
