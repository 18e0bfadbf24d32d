// shape.hpp: the tree of a complete job: rank r hangs below (r - 1) / 16, so a parent always has a
// lower rank than its children, and whatever happens the tree has no cycle.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sennit::control {

inline constexpr int kFanOut = 16;

// -1: rank 0 has none.
inline int static_parent(int rank) { return rank == 0 ? -1 : (rank - 1) / kFanOut; }

// Calls visit(child) for the children of `rank` in a job of `size` ranks, in ascending order.
template <typename Visit>
void for_each_static_child(int rank, int size, Visit visit) {
  const int64_t first = int64_t{rank} * kFanOut + 1;
  const int64_t end = std::min<int64_t>(first + kFanOut, size);
  for (int64_t child = first; child < end; child++) visit(static_cast<int>(child));
}

}  // namespace sennit::control
