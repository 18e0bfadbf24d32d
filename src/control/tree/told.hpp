// told.hpp: what was told once and must reach whoever takes a neighbour's place. A parent that is
// about to leave, or dies, may not have passed on what it was told last, so the next one is told
// again (Reports); a rank that attaches late may have missed what was flooded down (Announcements).
// To be told twice does no harm. Control thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "control/channels.hpp"
#include "control/self.hpp"
#include "control/tree/sender.hpp"

namespace sennit::control {

// Up the tree.
class Reports {
 public:
  Reports(const Self& self, Sender& sender) : self_(self), sender_(sender) {}

  void send_up(const EncodedFrame& frame);
  // There is a new parent.
  void tell_again();
  // There is none any more: this rank decides now. What nobody may have got; forgets the rest.
  std::vector<EncodedFrame> take_back();

 private:
  // One report and when it went up, to tell what a parent may have lost.
  struct Told {
    EncodedFrame frame;
    int64_t sent_ms;  // 0: there was no parent
  };
  bool may_be_lost(const Told& told) const;

  const Self& self_;
  Sender& sender_;
  std::deque<Told> told_;  // the last ones
};

// Down the tree, by number.
class Announcements {
 public:
  explicit Announcements(int rank) : rank_(rank) {}

  // A number that no other rank gives.
  uint64_t new_number() { return (static_cast<uint64_t>(rank_) << 32) | ++last_; }
  // False: it came before.
  bool remember(uint64_t number, const EncodedFrame& frame);
  // All that is remembered, to a rank that has just attached.
  void tell_again(Channels& channels, Channel& channel) const;

 private:
  const int rank_;
  uint32_t last_ = 0;
  std::deque<std::pair<uint64_t, EncodedFrame>> frames_;  // the last ones
  std::set<uint64_t> numbers_;                            // of frames_
};

}  // namespace sennit::control
