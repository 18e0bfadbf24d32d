// whole.hpp: exchange of whole pieces in the outermost stages, for messages where latency is
// everything.
//
// A *base* is a subtree just below the whole stages; it holds the vector split over its ranks (a
// rank: all of it). At every whole stage each rank receives its piece from the aligned base of each
// sibling group and all reduce all of them in the children's order, so everybody has the same bits.
// Groups of unequal size: base i of a group with m takes from base i * m' / m of a group with m',
// which so serves several or none. Rounds: one per stage.
#pragma once

#include <vector>

#include "collectives/tiered/forest.hpp"

namespace sennit::tiered {

// Bases in fabric order: stage nodes at depth `stages`, or ranks above it.
std::vector<int32_t> whole_bases(const StageTree& tree, int stages);
// The whole stages of a rank, from the innermost outwards. `out` is what it sends, `in` what it
// reduces.
std::vector<StageMoves> whole_moves(const Forest& forest, const std::vector<int32_t>& bases,
                                    int stages, int position);

}  // namespace sennit::tiered
