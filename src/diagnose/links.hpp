// links.hpp: which boundary of the tree is slow, by the service of the messages that cross it.
//
// An edge is slow where its messages took longer than they did while all was well, or, where that
// is not known, than the simulator expects. For each boundary and direction, and for each tier, it
// is asked how well "this one is slow, and nothing else is" explains which edges are: those of its
// edges that cross one tier are slower alike. The one that leaves least of edges and of the whole
// call unexplained, and blames least, is named. Edges that are slower by more than the whole call
// say most, as others may have waited for them. Boundaries that explain the same edges are not told
// apart, and are named together. No link is said to be slower than what it carried all the while
// allows, and where edges are slower than that by far, and are not simulated so, none is named.
//
// Who waits for whom such ratios cannot tell, and the simulator can (synthesis.hpp). Of few ranks
// the likely boundaries are simulated, each as slow as the call tells. One that shows most of what
// was observed, and far more than the first, is named instead, and with the factor that it was
// simulated with. Where the first explains little, and shows next to nothing, none is named. Of
// more than 32 ranks, or of several cables, the simulator is rough: it gives no factor there, and
// what shows next to nothing may be named.
//
// Where an uplink is several cables some carry more flows than others, as hashes have it, and a
// fabric that is well looks slow there. Only what was before tells, and without it nothing is
// judged.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/edges.hpp"
#include "diagnose/plans.hpp"
#include "topology/fabric/slow_boundary.hpp"

namespace sennit::diagnose {

// What is slow, and by how much.
struct SlowLink {
  std::vector<DirectedGroup> suspects;  // one of them is slow; of a tier, all are
  int tier = -1;                        // the whole tier; -1: one boundary
  bool both_ways = false;               // each suspect stands for its two directions
  double factor = 1;                    // what it should carry over what it does; 0: not known
  double confidence = 0;                // how much of the slowness it explains
  double cost = 0;                      // part of the calls' time that is lost to it
  // Index of the first call that it was slow in; 0 where what it was before is known apart.
  size_t since = 0;
  // That cross one of them, by positions: how many times as long as they should they take.
  std::map<std::pair<int, int>, double> edges;
};

// Of more ranks it is not tried.
inline constexpr int kMostRanksJudged = 1024;

// What edges say of the boundaries.
struct LinkFinding {
  std::optional<SlowLink> slow;  // one is
  bool well = false;             // none that they cross is; neither: that is not known
};

// Calls of at most so many ranks are simulated with what may be slow. Each such link costs the
// messages of a call once a try, in up to three tries. All first tries together have at most
// `messages`, of which 10,000 take some 20 ms of a core. `cables`: also where uplinks are several,
// which are simulated as one.
struct SimulationLimits {
  int ranks = 0;
  size_t messages = 0;
  bool cables = false;
};
inline constexpr SimulationLimits kWhileItRuns{32, 24'576, false}, kOfRecordings{64, 98'304, true};

// Well is what is not slower than `least_factor`, and known to be: not where it is not known what
// edges should take, nor where something is slow that no boundary explains.
LinkFinding find_slow_link(Plans& plans, const ObservedPlan& observed, double least_factor,
                           const SimulationLimits& limits);

// "out of rack1", "into h3", "h3".
std::string link_name(const TierTree& tree, const DirectedGroup& link, bool both_ways);
// What links of such names carry if they should carry `factor` times as much; a name without a way
// is both ways. Empty where the factor is not known, or is none.
std::vector<SlowBoundary> slow_boundaries(const std::vector<std::string>& link_names,
                                          double factor);

}  // namespace sennit::diagnose
