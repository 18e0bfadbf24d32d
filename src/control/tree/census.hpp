// census.hpp: what this rank knows of all ranks of the job: where they are, who has left, who is
// dead, and therefore who decides. Control thread only. Memory: O(ranks).
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "control/messages.hpp"
#include "control/self.hpp"

namespace sennit::control {

class Census {
 public:
  explicit Census(const Self& self) : self_(self) {}

  // By rank; complete from phase running on, at rank 0 filled as they come.
  std::vector<Member> members;
  std::set<int> dead, left;   // grow only
  std::set<int> unreachable;  // this rank found nobody there; not decided
  Status decision;            // about the dead; at the start: why it failed
  bool excluded = false;      // the others took this rank for dead

  bool gone(int rank) const {
    return dead.count(rank) > 0 || left.count(rank) > 0 || unreachable.count(rank) > 0;
  }
  // Whether it is still to be decided of one that this rank found nobody at.
  bool undecided() const {
    return std::ranges::any_of(
        unreachable, [this](int rank) { return !dead.contains(rank) && !left.contains(rank); });
  }
  // This rank, or a lower one that is not known to be gone.
  int lowest_alive() const;
  // Whether this rank decides who is dead and which calls fail.
  bool coordinator() const {
    return !self_.starting() && !excluded && lowest_alive() == self_.rank;
  }
  const Address& address_of(int rank) const { return members[static_cast<size_t>(rank)].address; }
  // "rank 3 (host a, pid 17)", or "rank 3" as long as no more is known.
  std::string describe(int rank) const;

 private:
  const Self& self_;
};

}  // namespace sennit::control
