// median.hpp: the middle of some numbers; of an even count, the mean of the two in the middle.
#pragma once

#include <algorithm>
#include <vector>

namespace sennit {

// At least one value.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

}  // namespace sennit
