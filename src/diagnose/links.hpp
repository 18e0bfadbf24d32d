// links.hpp: which boundary of the tree is slow, by the service of the messages that cross it.
//
// An edge is slow where its messages took longer than the simulator expects. For each boundary and
// direction, and for each tier, it is asked how well "this one is slow, and nothing else is"
// explains which edges are; the likeliest are simulated, slowed, and the one that comes nearest to
// what was observed, of its own edges and of the whole call, is named. Boundaries that the same
// messages cross are not told apart, and are named together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/edges.hpp"
#include "diagnose/plans.hpp"

namespace sennit::diagnose {

// What is slow, and by how much.
struct SlowLink {
  std::vector<DirectedGroup> suspects;  // one of them is slow; of a tier, all are
  int tier = -1;                        // the whole tier; -1: one boundary
  bool both_ways = false;               // each suspect stands for its two directions
  double factor = 1;                    // what it should carry over what it does; 0: not known
  double confidence = 0;                // how much of the slowness it explains
  double cost = 0;                      // part of the calls' time that is lost to it
  size_t since = 0;                     // index of the first call that it was slow in
};

// Of more ranks it is not tried: what is likely is simulated.
inline constexpr int kMostRanksJudged = 1024;

// `observed`: calls of the plan that `blueprint` was made of, on this tree. Nothing where no
// boundary is slower than `least_factor`, or none explains what is slow.
std::optional<SlowLink> find_slow_link(const TierTree& tree, const PlanNote& plan,
                                       const Blueprint& blueprint, const ObservedPlan& observed,
                                       double least_factor);

// "out of rack1", "into h3", "h3".
std::string link_name(const TierTree& tree, const DirectedGroup& link, bool both_ways);

}  // namespace sennit::diagnose
