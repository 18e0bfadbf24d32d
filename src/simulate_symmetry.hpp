// simulate_symmetry.hpp: which ranks of a collective do the same thing at the same time, so that one of them
// is simulated for all.
//
// Colour refinement (the equitable partition of Weisfeiler and Leman) over ranks and groups together. Two
// ranks stay alike while their programs have the same steps, lengths and dependencies, and their k-th peers
// are alike, at the same distance, and know them by the same number; two groups while their capacities,
// parents and children are. All ranks of a class then send and receive at the same moments, and every group
// of a class carries the same number of each of their flows: the simulation of one rank per class and one
// link per class of groups is that of all. Lengths that differ by rounding alone, by less than 1 in 1,000,
// are taken as equal. Cost: all programs once, then O(peers of all ranks) a round; memory O(peers of all
// ranks).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "algorithm.hpp"
#include "prepared.hpp"

namespace sennit::simulation {

struct Symmetry {
  struct RankClass {
    int position = 0;    // of the rank that stands for all
    uint32_t ranks = 1;  // how many they are
    std::shared_ptr<const Prepared> prepared;
    std::vector<uint32_t> partner;     // by step, of sends: the receive that it meets at the peer
    std::vector<uint32_t> peer_class;  // by Prepared::peers
  };
  std::vector<RankClass> classes;
  std::vector<uint32_t> class_of_group;
  std::vector<uint32_t> groups_of_class;
};

// `use`: false makes every rank and group a class of its own. Errors: a message that has one end only, or a
// peer that does not exist: the schedule's fault.
Result<Symmetry> find_symmetry(const TierTree& tree, const Request& request, uint32_t chunks,
                               const Blueprint& blueprint, bool use);

}  // namespace sennit::simulation
