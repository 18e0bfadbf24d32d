// count.hpp: how many messages, bytes and rounds the tiered programs of all ranks come to, without
// making them.
//
// Messages: a rank sends to another at a stage where the two hold a common stretch of data, so the
// pairs follow from the partitions and flows of the stage's node, once for all stages that share
// it; stretches too short for an element are no message. Bytes: every piece enters every group
// once, so a tier of n groups is crossed by n-1 times the data (twice that for all-reduce), and
// whole pieces once for each base and sibling. Rounds: the deepest data's way up and down. Only for
// trees with every tier above every rank, and equal blocks. Cost: O(ranks * fan-out) for each kind
// of stage.
#pragma once

#include <optional>

#include "collectives/algorithm.hpp"
#include "collectives/tiered/forest.hpp"

namespace sennit::tiered {

// `bases`: whole_bases(); empty where no stage exchanges whole pieces.
std::optional<Counts> count(const TierTree& tree, const Request& request, const Forest& forest,
                            int whole_stages, const std::vector<int32_t>& bases);

}  // namespace sennit::tiered
