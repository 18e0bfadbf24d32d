// runs.cpp: see collectives/tiered/runs.hpp.
#include "collectives/tiered/runs.hpp"

#include <bit>
#include <numeric>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "base/sort_stretches.hpp"
#include "schedule/program.hpp"

namespace sennit::tiered {

RunList::RunList(std::vector<CarriedRun> runs, bool weighted) : runs_(std::move(runs)) {
  runs_.shrink_to_fit();
  units_.reserve(runs_.size() + 1);
  units_.push_back(0);
  for (const CarriedRun& r : runs_) units_.push_back(units_.back() + (r.end - r.begin));
  make_segments();
  if (!weighted) return;
  weights_.reserve(runs_.size() + 1);
  weights_.push_back(0);
  for (const CarriedRun& r : runs_)
    weights_.push_back(weights_.back() +
                       static_cast<unsigned __int128>(r.end - r.begin) * r.weight);
  if (weights_.back() == 0) weights_.clear();
}

void RunList::make_segments() {
  const auto goes_on = [&](size_t i) { return i > 0 && runs_[i].begin == runs_[i - 1].end; };
  std::vector<Segment> on_line;
  for (size_t i = 0; i < runs_.size(); i++)
    if (goes_on(i))
      on_line.back().end = runs_[i].end;
    else
      on_line.push_back({runs_[i].begin, runs_[i].end, units_[i]});
  std::vector<uint32_t> order(on_line.size());
  std::iota(order.begin(), order.end(), 0u);
  sort_stretches(order,
                 [&](uint32_t a, uint32_t b) { return on_line[a].begin < on_line[b].begin; });
  segments_.reserve(order.size());
  line_order_.resize(order.size());
  for (const uint32_t at : order) {
    line_order_[at] = static_cast<uint32_t>(segments_.size());
    segments_.push_back(on_line[at]);
  }
}

size_t RunList::segment_at(uint64_t line) const {
  const auto after =
      std::upper_bound(line_order_.begin(), line_order_.end(), line,
                       [&](uint64_t at, uint32_t s) { return at < segments_[s].line; });
  return index(after - line_order_.begin()) - 1;
}

// A set of bits puts the segments into ascending order: no sorting.
void RunList::append_places(uint64_t from, uint64_t to, uint64_t offset, Places& places) const {
  if (from >= to) return;
  const auto add = [&](const Segment& s) {
    const uint64_t low = std::max(from, s.line), high = std::min(to, s.line + (s.end - s.begin));
    append(places, offset + s.begin + (low - s.line), offset + s.begin + (high - s.line));
  };
  const size_t first = segment_at(from), last = segment_at(to - 1);
  if (first == last) return add(segments_[line_order_[first]]);
  const auto [lowest, highest] =
      std::minmax_element(line_order_.begin() + static_cast<ptrdiff_t>(first),
                          line_order_.begin() + static_cast<ptrdiff_t>(last) + 1);
  const uint32_t base = *lowest;
  std::vector<uint64_t> bits((*highest - base) / 64 + 1, 0);
  for (size_t i = first; i <= last; i++) {
    const uint32_t bit = line_order_[i] - base;
    bits[bit / 64] |= uint64_t{1} << bit % 64;
  }
  for (size_t word = 0; word < bits.size(); word++)
    for (uint64_t left = bits[word]; left != 0; left &= left - 1)
      add(segments_[base + word * 64 + index(std::countr_zero(left))]);
}

// Where all weigh alike, cut(part) <= line is the same as part * units() < (line + 1) * kUnits.
size_t RunList::holder_at(const Partition& partition, uint64_t line) const {
  if (weights_.empty())
    return partition.piece_at(static_cast<uint64_t>(((Wide{line} + 1) * kUnits - 1) / units()));
  size_t low = 0, high = partition.pieces() - 1;
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (cut(partition.begin(middle)) <= line)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

uint64_t RunList::cut(uint64_t part) const {
  if (part == 0) return 0;
  if (part >= kUnits) return units();
  if (weights_.empty())
    return static_cast<uint64_t>(static_cast<unsigned __int128>(units()) * part / kUnits);
  const unsigned __int128 target = weights_.back() * part / kUnits;
  const auto after = std::upper_bound(weights_.begin(), weights_.end(), target);
  const size_t run = index(after - weights_.begin()) - 1;
  if (run >= runs_.size()) return units();
  return units_[run] + static_cast<uint64_t>((target - weights_[run]) / runs_[run].weight);
}

}  // namespace sennit::tiered
