// places.hpp: sets of places as ascending intervals, and what is done with them stretch by stretch.
//
// A place is block * kUnits + unit in fabric order. Most sets come out of a forest in ascending
// order, so that uniting and cutting them are walks side by side; sorting is for the rest. Cost:
// O(intervals) where not said otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sennit::tiered {

// Places [begin, end): block * kUnits + unit.
struct Interval {
  uint64_t begin = 0, end = 0;
  bool operator==(const Interval&) const = default;
  bool operator<(const Interval& other) const {
    return begin != other.begin ? begin < other.begin : end < other.end;
  }
};

using Places = std::vector<Interval>;  // ascending and disjoint, neighbours joined

// Neighbours become one. What begins before the last one ends calls for arrange() in the end.
inline void append(Places& places, uint64_t begin, uint64_t end) {
  if (!places.empty() && places.back().end == begin)
    places.back().end = end;
  else if (begin < end)
    places.push_back({begin, end});
}

// Makes appended intervals ascending and disjoint. O(n log n) where they are not.
void arrange(Places& places);

// What is in either.
Places unite(const Places& a, const Places& b);

// f(begin, end, whether `inner` has it) for all of `outer`, ascending; cut where `inner` begins or
// ends.
template <typename F>
void walk_both(const Places& outer, const Places& inner, F&& f) {
  auto next = inner.begin();
  for (const Interval& stretch : outer)
    for (uint64_t at = stretch.begin; at < stretch.end;) {
      if (next != inner.end() && next->end <= at) ++next;
      if (next != inner.end() && next->end <= at)
        next = std::upper_bound(next, inner.end(), at,
                                [](uint64_t place, const Interval& i) { return place < i.end; });
      const bool inside = next != inner.end() && next->begin <= at;
      uint64_t end = stretch.end;
      if (next != inner.end()) end = std::min(end, inside ? next->end : next->begin);
      f(at, end, inside);
      at = end;
    }
}

}  // namespace sennit::tiered
