// news.hpp: what the users of the control plane tell one another over its tree: one rank to the
// coordinator, and the coordinator to all. What it means is theirs. Control thread only.
#pragma once

#include <deque>

#include "control/channels.hpp"
#include "control/messages.hpp"
#include "control/tree/census.hpp"
#include "control/tree/sender.hpp"

namespace sennit::control {

class News {
 public:
  News(const Self& self, const Census& census, Sender& sender)
      : self_(self), census_(census), sender_(sender) {}

  // ---- of this rank ----
  void tell(uint8_t topic, const Blob& blob) { on_tell({self_.rank, topic, blob}); }
  void announce(uint8_t topic, uint64_t key, const Blob& blob);
  // There is a new parent, or none any more.
  void tell_again();

  // ---- of others ----
  void on_tell(const Tell& message);
  void on_announce(const Announce& message);
  // To a rank that has just attached, what it may have missed.
  void tell_child(Channels& channels, Channel& channel) const;

 private:
  struct Kept {
    uint8_t topic;
    uint64_t key;
    EncodedFrame frame;
  };
  static constexpr size_t kMostKept = 4096;

  const Self& self_;
  const Census& census_;
  Sender& sender_;
  // Of the latest announcement. A coordinator counts from its rank, which is higher than those of
  // the coordinators before it, and the tree keeps the order.
  uint64_t latest_ = 0;
  std::deque<Kept> announced_;  // the latest of each topic and key, in their order
};

}  // namespace sennit::control
