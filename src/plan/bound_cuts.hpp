// bound_cuts.hpp: what the bound of one collective (plan/bound.cpp) and that of a set of process
// groups (concurrent/bound.cpp) share: what must cross a group's boundary, and the largest of the
// times that follow.
//
// Only declared and measured capacities count. A boundary that needs one which is unknown makes the
// bound unknown; what lies within a host is not needed, because leaving a cut out only lowers the
// bound. Exact integers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/arithmetic.hpp"
#include "plan/bound.hpp"

namespace sennit::cuts {

// Whether a bound may be built on it.
inline bool usable(const Capacity& c) {
  return c.known() &&
         (c.provenance == Provenance::declared || c.provenance == Provenance::measured);
}

// Rounded up, and never more than the largest time there is.
uint64_t time_ns(Wide bytes, Wide bytes_per_s);

// Of the ranks that run a request together.
struct Whole {
  const Request* request;
  Wide members = 0, bytes = 0;  // of all blocks
  Wide vector = 0;              // of one block: the vector, or what all-to-all sends to one peer
};

// Those of them within one group of the tree.
struct Share {
  Wide members = 0, bytes = 0;  // of their blocks
  bool root = false;
};

// Bytes that must cross a group's boundary.
struct Need {
  Wide out = 0, in = 0;
};
// What the request, run by `all`, needs at the boundary around `own`. Nothing for a barrier and a
// send_recv. `all` must have ranks beyond the boundary: else what is reduced or sent counts too.
Need need(const Whole& all, const Share& own);

// The largest time that was offered, and the words for it.
class LargestTime {
 public:
  explicit LargestTime(const TierTree& tree);

  // Wider tiers win ties, so that the scarcer resource is named; a group that is not alone binds
  // with its tier. `group`: -1 where a whole tier binds together.
  void offer(uint64_t ns, int tier, int group, const std::function<std::string()>& why);
  // Of what must cross the boundary of a group; `of_what` follows in the words.
  void offer_boundary(int group, const Need& bytes, const std::string& of_what = "");
  bool binds() const { return bound_.binding_tier >= 0; }
  // a capacity that some boundary needs; empty: none
  const std::string& missing() const { return missing_; }

  Bound known();
  Bound unknown(std::string why);

 private:
  std::string group_text(int group) const;

  const TierTree& tree_;
  std::vector<bool> within_host_;
  std::string missing_, reason_;
  Bound bound_;
};

}  // namespace sennit::cuts
