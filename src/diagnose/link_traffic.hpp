// link_traffic.hpp: what the observed calls sent over each link, and so how slow it may be at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "diagnose/edges.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::diagnose {

// Directed groups are numbered from 0.
inline size_t number_of(const DirectedGroup& link) {
  return 2 * index(link.group) + (link.egress ? 0 : 1);
}

// References outlive it. An edge is told by its place in the first call.
class LinkTraffic {
 public:
  LinkTraffic(const TierTree& tree, const ObservedPlan& observed);

  size_t edges() const { return ways_.size(); }
  const std::vector<DirectedGroup>& way_of_edge(size_t at) const { return ways_[at]; }
  // In that call; nullptr: it was lost there.
  const EdgeTime* edge_of(size_t call, size_t at) const;
  // No link carries less while something waits for it than it does over whole calls, so it is
  // slower by no more than this: its capacity over what it carried. Of several links the middle one
  // tells. `of_tier`: they are all of a tier. `well_ns`: what a call takes while all is well, or 0.
  // 0: it is not known, as of several cables, of which nobody knows what each carries.
  double most_factor(const std::vector<DirectedGroup>& links, bool of_tier, double well_ns) const;
  // Of the last calls that they were slow in without a break.
  size_t first_slow_call(const std::vector<DirectedGroup>& links) const;

 private:
  std::vector<const EdgeTime*> edges_over(const DirectedGroup& link, size_t call) const;
  uint64_t capacity_of(const DirectedGroup& link) const;
  double throughput_factor(const std::vector<DirectedGroup>& links, size_t call) const;

  const TierTree& tree_;
  const ObservedPlan& observed_;
  std::vector<std::vector<DirectedGroup>> ways_;  // by edge
  std::vector<std::vector<size_t>> over_;         // by directed group: which edges cross it
};

}  // namespace sennit::diagnose
