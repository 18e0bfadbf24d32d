// verify.hpp: runs the programs of all ranks symbolically and proves what they do, before anything
// runs for real.
//
// The value at a place is {which positions contributed, source coordinate}; sends move values,
// reduces unite disjoint contributor sets. Checked: every output element holds exactly what the
// collective defines (each contribution once, finished exactly once), nothing is read before it is
// written, all ranges are in bounds, every send has its receive with the same length, no step
// overwrites what a later step still reads, and no deadlock in *any* order that deps allow when
// every large send waits for its receive to be posted (finite credits). Counted: units over every
// group boundary, per direction. Cost: O(steps log steps); contributor sets are runs of positions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"

namespace sennit {

// What was found: that all is correct, or the first thing that is not.
struct Verdict {
  bool correct = false;
  std::string error;  // first thing that is wrong: rank, step, range
  // by group of the tree: units sent across its boundary, outwards
  std::vector<uint64_t> egress_units;
  std::vector<uint64_t> ingress_units;
  uint64_t steps = 0;      // of all ranks
  uint64_t max_steps = 0;  // of one rank
  uint64_t rounds = 0;     // messages on the longest dependent chain
};

// Verifies all ranks. For a v-variant, units are weighted by nothing: 1 block = kUnits.
Verdict verify(const TierTree& tree, const Request& request, const Blueprint& blueprint);

}  // namespace sennit
