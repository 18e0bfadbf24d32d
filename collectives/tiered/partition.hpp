// partition.hpp: which rank of a group holds a piece of data for the group, as intervals of [0,
// kUnits).
//
// Near first: each child has its own partition, and at every point the group's holder is one of the
// children's holders there. A child with share f must be chosen on f of each of its ranks'
// intervals. That is a schedule of jobs on one machine: job (begin, end) of length f * (end -
// begin), and earliest deadline first finds it with at most one cut per job, so that intervals stay
// few however unequal the children are. Where the children are alike, every rank gets one interval.
// Rounding: a few units in kUnits. Time: O(intervals log intervals).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"

namespace sennit::tiered {

// Which rank of a group holds which part of a piece, in pieces that ascend. Immutable.
class Partition {
 public:
  struct Child {
    const Partition* partition = nullptr;
    uint32_t first = 0;  // the child's first rank within the group
  };
  static Partition single();  // one rank holds everything
  // prefix: prefix sums of the children's shares, kUnits in all.
  static Partition combine(std::span<const Child> children, std::span<const uint64_t> prefix);

  size_t pieces() const { return rank_.size(); }
  uint64_t begin(size_t piece) const { return begin_[piece]; }
  uint64_t end(size_t piece) const { return begin_[piece + 1]; }
  uint32_t rank(size_t piece) const { return rank_[piece]; }
  size_t piece_at(uint64_t place) const {
    return index(std::upper_bound(begin_.begin(), begin_.end() - 1, place) - begin_.begin()) - 1;
  }
  // Pieces of one rank, ascending.
  std::span<const uint32_t> pieces_of(uint32_t rank) const {
    return {of_rank_.data() + first_of_rank_[rank],
            first_of_rank_[rank + 1] - first_of_rank_[rank]};
  }
  // f(begin, end, rank) for every piece that meets [from, to), cut to it.
  template <typename F>
  void visit(uint64_t from, uint64_t to, F&& f) const {
    if (from >= to) return;
    for (size_t p = piece_at(from); p < pieces() && begin_[p] < to; p++)
      f(std::max(from, begin_[p]), std::min(to, begin_[p + 1]), rank_[p]);
  }

 private:
  void index_ranks(uint32_t ranks);

  std::vector<uint64_t> begin_;  // of each piece, and kUnits at the end
  std::vector<uint32_t> rank_;
  std::vector<uint32_t> first_of_rank_, of_rank_;
};

}  // namespace sennit::tiered
