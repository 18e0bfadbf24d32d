// sort_stretches.hpp: sorts what is ascending stretch by stretch.
//
// Programs name places in lists that ascend each by itself; their bounds, one list after another,
// are a few long ascending stretches, which natural merging sorts in O(n log stretches) without a
// look at the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace sennit {

template <typename T, typename Earlier = std::less<T>>
void sort_stretches(std::vector<T>& values, Earlier earlier = {}) {
  const auto at = [&](size_t i) { return values.begin() + static_cast<ptrdiff_t>(i); };
  // of sorted parts; each is more than twice as long as the one after it
  std::vector<size_t> begins;
  size_t end = 0;  // of the last part
  const auto merge_last = [&] {
    const size_t middle = begins.back();
    begins.pop_back();
    std::inplace_merge(at(begins.back()), at(middle), at(end), earlier);
  };
  while (end < values.size()) {
    begins.push_back(end);
    end =
        static_cast<size_t>(std::is_sorted_until(at(end), values.end(), earlier) - values.begin());
    while (begins.size() > 1 &&
           begins.back() - begins[begins.size() - 2] <= 2 * (end - begins.back()))
      merge_last();
  }
  while (begins.size() > 1) merge_last();
}

}  // namespace sennit
