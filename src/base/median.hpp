// median.hpp: the middle of some numbers, and which of them stand out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace sennit {

// Of at least one value. Of an even count, the lower of the two in the middle: so one of two can
// stand out.
inline double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of at least one value. Of an even count, the mean of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  const bool odd = values.size() % 2 == 1;
  return odd ? *middle : (*std::min_element(middle + 1, values.end()) + *middle) / 2;
}

// Of at least one value: the mean without a tenth at either end, of few without the least and the
// most. It varies less than the median.
inline double trimmed_mean(std::vector<double> values) {
  constexpr size_t kTenth = 10, kFew = 3;
  const size_t out = values.size() < kFew ? 0 : std::max<size_t>(1, values.size() / kTenth);
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(out),
             end = values.end() - static_cast<std::ptrdiff_t>(out);
  if (out > 0) {
    std::nth_element(values.begin(), begin, values.end());
    std::nth_element(begin, end, values.end());
  }
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

// Of at least one time: the trimmed mean of logarithms, as a time again.
inline double usual_time(std::vector<double> times) {
  for (double& time : times) time = std::log(std::max(1.0, time));
  return std::exp(trimmed_mean(std::move(times)));
}

// Of values with weights, the one that has `part` of the weights below it. 0: there is none.
inline double weighted_median(std::vector<std::pair<double, double>> weighted, double part = 0.5) {
  if (weighted.empty()) return 0;
  std::sort(weighted.begin(), weighted.end());
  double all = 0, below = 0;
  for (const auto& [value, weight] : weighted) all += weight;
  for (const auto& [value, weight] : weighted)
    if ((below += weight) >= part * all) return value;
  return weighted.back().first;
}

// Of values that differ from their lower median, usually by some distance: what is above it by less
// than three times that is above it by chance.
inline double chance_above(std::vector<double> values) {
  constexpr double kTimes = 3;
  const double usual = lower_median(values);
  for (double& value : values) value = std::abs(value - usual);
  return kTimes * lower_median(std::move(values));
}

}  // namespace sennit
