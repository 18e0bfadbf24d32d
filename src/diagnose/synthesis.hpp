// synthesis.hpp: what calls would look like if a boundary were slow, by the simulator, held against
// what they looked like.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "collectives/algorithm.hpp"
#include "diagnose/edges.hpp"
#include "diagnose/expected.hpp"
#include "record/notes.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::diagnose {

// What edges and the whole call took, and what they took while all was well. Of what is not known
// to have been well it is what the simulator says.
struct TookAndWell {
  struct OfEdge {
    int from = 0, to = 0;  // positions
    double took_ns = 0, well_ns = 0;
    double chance_ns = 0;  // less than that it differs from call to call
  };
  std::vector<OfEdge> edges;
  double took_ns = 0, well_ns = 0;
};

// How much what is simulated looks like what was observed.
struct Likeness {
  // The part of what became slower that the simulator does not show so. 0: it shows just that; 1
  // and more: nothing of it.
  double left = std::numeric_limits<double>::infinity();
  double factor = 1;  // by which it was simulated to be slower
};

// References outlive it. Capacities are known. A boundary of several cables is simulated as one,
// since nobody knows which of them a message takes.
class Synthesis {
 public:
  // `well`: what the plan takes on the tree as it is specified. `of`: with `well_ns` 0 where it is
  // not known.
  Synthesis(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
            const ExpectedPlan& well, TookAndWell of);

  // If these were slower, all by one factor, so that the call takes what it took, but by no more
  // than `most` (infinity: it is not known). Where edges alone leave more than `hopeless`, or far
  // more by the first factor, no other is tried. Nothing where it cannot be simulated.
  std::optional<Likeness> likeness(const std::vector<DirectedGroup>& links, double most,
                                   double hopeless = std::numeric_limits<double>::infinity()) const;
  // What is left of edges, of which there are some, without a simulation: if just these became
  // slower, each by as much time. They are told by their places among those that were given.
  double left_if_alike(const std::vector<uint32_t>& edges) const;

 private:
  double left_of_edges(const ExpectedPlan& slow) const;
  double left_of_time(const ExpectedPlan& slow) const;

  const TierTree& tree_;
  const PlanNote& plan_;
  const Blueprint& blueprint_;
  const ExpectedPlan& well_;
  TookAndWell of_;
  std::vector<double> became_ns_;  // by edge: by how much slower; 0: it is not
  double all_became_ns_ = 0;       // together
};

}  // namespace sennit::diagnose
