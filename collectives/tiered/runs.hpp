// runs.hpp: a group's own data as a list of runs, in the order in which outsiders share it out.
//
// A run is a stretch of one block with the rank that carries it for the group. The list is a line:
// outsiders cut it by weight (elements), so that a partition's interval [a, b) of kUnits maps to a
// stretch of the line. Cuts are a pure function of the list, so all ranks agree, and neighbouring
// intervals meet exactly. Places are relative to the group: block 0 is its first rank's. Whoever
// only passes data on does not care who carried it: for them neighbouring runs are one *segment*,
// and a stretch of the line comes in ascending places, sorted once for all ranks. Memory: 32 bytes
// a run, 8 to 24 of prefix sums, 28 a segment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "collectives/tiered/partition.hpp"
#include "collectives/tiered/places.hpp"

namespace sennit::tiered {

// A stretch of one block, with the rank that carries it for the group.
struct CarriedRun {
  uint64_t begin = 0, end = 0;  // place: block * kUnits + unit, within one block
  uint32_t carrier = 0;
  uint64_t weight = 1;  // per unit: the block's elements
};

// Runs in the line's order. Immutable.
class RunList {
 public:
  explicit RunList(std::vector<CarriedRun> runs, bool weighted);

  std::span<const CarriedRun> runs() const { return runs_; }
  uint64_t units() const { return units_.back(); }
  uint64_t line_begin(size_t run) const { return units_[run]; }
  // Where on the line the interval [0, part) of kUnits ends.
  uint64_t cut(uint64_t part) const;
  // The places of the stretch [from, to) of the line, moved on by `offset`: appended in ascending
  // order.
  void append_places(uint64_t from, uint64_t to, uint64_t offset, Places& places) const;
  // f(begin, end, carrier) for the stretch [from, to) of the line: places in the line's order.
  template <typename F>
  void visit(uint64_t from, uint64_t to, F&& f) const {
    visit_while(from, to, [&](uint64_t begin, uint64_t end, uint32_t carrier) {
      f(begin, end, carrier);
      return true;
    });
  }
  // Until f says false.
  template <typename F>
  void visit_while(uint64_t from, uint64_t to, F&& f) const {
    if (from >= to) return;
    for (size_t i = run_at(from); i < runs_.size() && units_[i] < to; i++) {
      const uint64_t low = std::max(from, units_[i]), high = std::min(to, units_[i + 1]);
      if (low < high && !f(runs_[i].begin + (low - units_[i]), runs_[i].begin + (high - units_[i]),
                           runs_[i].carrier))
        return;
    }
  }
  // f(begin, end, rank) on the line for the stretch [from, to), by the partition's ranks.
  template <typename F>
  void visit_holders(const Partition& partition, uint64_t from, uint64_t to, F&& f) const {
    if (from >= to) return;
    size_t piece = holder_at(partition, from);
    for (uint64_t at = from; at < to; piece++) {
      const uint64_t end = std::min(to, cut(partition.end(piece)));
      if (end > at) f(at, end, partition.rank(piece));
      at = std::max(at, end);
    }
  }

 private:
  // The last piece that begins at or before a place on the line.
  size_t holder_at(const Partition& partition, uint64_t line) const;
  size_t run_at(uint64_t line) const {
    return index(std::upper_bound(units_.begin(), units_.end() - 1, line) - units_.begin()) - 1;
  }

  struct Segment {
    uint64_t begin = 0, end = 0;  // places
    uint64_t line = 0;
  };

  void make_segments();
  size_t segment_at(uint64_t line) const;  // index into line_order_

  std::vector<CarriedRun> runs_;
  std::vector<Segment> segments_;           // by place
  std::vector<uint32_t> line_order_;        // indices of segments
  std::vector<uint64_t> units_;             // prefix sums of lengths, one more than runs
  std::vector<unsigned __int128> weights_;  // prefix sums of weights; empty: alike, cut by units
};

}  // namespace sennit::tiered
