// roster.hpp: the start at rank 0: takes down who has come, tells everybody its parent as soon as
// that has come, makes the table of addresses, and knows who is missing when the time is up.
//
// Strangers have been kept out by the handshake; here ranks are turned away that hold the secret
// and still do not belong: another size, another job, a rank that came twice. Cost: O(1) per rank;
// a waiting rank holds one connection. Control thread only.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "control/rank/sharing.hpp"
#include "control/tree/tree.hpp"

namespace sennit::control {

class Roster {
 public:
  Roster(const Self& self, Census& census, Channels& channels, const Door& door, Tree& tree)
      : self_(self),
        census_(census),
        channels_(channels),
        door_(door),
        tree_(tree),
        sharing_(self) {}

  // Rank 0 itself has come.
  void begin();
  // Whether it is of this job; else it has been turned away.
  bool admits(Channel& channel, const Enlist& enlist);
  // It is of this job, and waits for its parent, or is told at once where that is. While all that
  // have come are in an older job as well nobody is told: it may be that nobody needs a parent.
  void enlist(Channel& channel, const Enlist& enlist);
  // It is of this job, but has come for nothing: it waits to be told so.
  void keep(Channel& channel, int rank);
  void note_arrival(int rank) { arrived_.insert(rank); }
  // Its connection ended while it waited: it may come again.
  void forget_arrival(int rank);
  void forget(const Channel& channel);  // it is about to be gone

  bool all_arrived() const { return arrived_.size() == static_cast<size_t>(self_.size); }
  void tell_waiting(const EncodedFrame& frame);
  // Once all are here: the job that carries this one, which all wait to be told. Nothing where
  // there is none; then those that wait are told their parents.
  std::optional<SharedJob> share();
  // Of all ranks, with addresses at which the others can reach them.
  Table table();
  // Who is missing, now that the time is up.
  Status missing() const;
  // "rank 3 (host a, pid 17)"
  static std::string describe(const Enlist& enlist);

 private:
  void turn_away(Channel& channel, const Enlist& enlist, const std::string& text);
  void tell_parent(Channel& channel);
  void tell_parents();
  Address own_address() const;

  const Self& self_;
  Census& census_;
  Channels& channels_;
  const Door& door_;
  Tree& tree_;
  std::set<int> arrived_;
  std::map<int, uint64_t> waiting_;  // rank -> channel, of those whose parent has not come yet
  std::optional<Address> public_;    // rank 0 as others reach it
  Sharing sharing_;
};

}  // namespace sennit::control
