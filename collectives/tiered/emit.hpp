// emit.hpp: turns a rank's moves into a Program: gathering outwards, or scattering with reduction
// backwards.
//
// Messages of one stage to one peer are one send with several ranges, in ascending places on both
// sides. Ranks start with the next peer after them, so that not all send to the same one first. A
// reduction names its sources in fabric order of the children, so every sum has one order. Scratch:
// what a rank receives to reduce; for reduce-scatter and reduce also its partial sums (all-reduce
// keeps them in the output). Not thread-safe; one per program.
#pragma once

#include <vector>

#include "collectives/tiered/forest.hpp"
#include "schedule/program.hpp"

namespace sennit::tiered {

// Writes the program of one rank, once: one of the functions below, then finish(). Tree and request
// must outlive it.
class Emitter {
 public:
  Emitter(const TierTree& tree, const Request& request, int position);

  void copy_all();                                      // a single rank
  void gather(const std::vector<StageMoves>& stages);   // all-gather, broadcast
  void scatter(const std::vector<StageMoves>& stages);  // reduce-scatter, reduce
  // All-reduce, barrier: scatter over the inner stages, exchange of whole pieces over the outer
  // ones, gather back.
  void all_reduce(const std::vector<StageMoves>& inner, const std::vector<StageMoves>& whole);
  Program finish() { return builder_.finish(); }

 private:
  struct Sum {  // places whose sums have the same sources
    Places places;
    std::vector<const Move*> from;  // by child
    bool accumulated = false, last = false;
  };

  std::vector<Range> ranges(const Places& places) const;
  uint64_t own_begin() const { return static_cast<uint64_t>(position_) * kUnits; }
  bool owned(uint64_t place) const;
  // The moves, from the nearest peer after (sending) or before this rank.
  std::vector<const Move*> by_peer(const Moves& moves, bool sending) const;

  void receive_results(const Moves& moves);
  void send_results(const Moves& moves);
  void send_partials(const Moves& moves);
  // Receives the peers' partial sums and adds them to this rank's; `last`: its own results are then
  // complete.
  void collect(const Moves& moves, uint32_t own_child, bool last);
  std::vector<Sum> sums_of(const Moves& moves, bool last) const;

  void declare_partials(const std::vector<StageMoves>& stages);
  Operand partials(const std::vector<Range>& at);

  const TierTree& tree_;
  const Request& request_;
  const int position_;
  const bool one_owner_;   // broadcast, reduce: all data is the root's block
  const bool one_vector_;  // all-reduce, barrier: partial sums lie in the output
  ProgramBuilder builder_;
  Operand partials_;    // the slot of partial sums
  Places accumulated_;  // places with a partial sum
};

}  // namespace sennit::tiered
