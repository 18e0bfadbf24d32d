// by_chance.cpp: see base/by_chance.hpp.
#include "base/by_chance.hpp"

#include <algorithm>
#include <cmath>

namespace sennit {
namespace {

// By rank, and then by stretch: which part of all ranks was as late as it was, or later.
std::vector<std::vector<double>> as_late(const std::vector<std::vector<double>>& late) {
  std::vector<std::vector<double>> parts(late.size());
  for (size_t at = 0; at < late.front().size(); at++) {
    std::vector<double> all;
    for (const std::vector<double>& of_rank : late) all.push_back(of_rank[at]);
    std::sort(all.begin(), all.end());
    for (size_t r = 0; r < late.size(); r++) {
      const auto its = std::lower_bound(all.begin(), all.end(), late[r][at]);
      parts[r].push_back(static_cast<double>(all.end() - its) / static_cast<double>(all.size()));
    }
  }
  return parts;
}

// How likely at least `often` of `tries` come out, each of which does with this likelihood.
double likely_so_often(size_t often, size_t tries, double each) {
  if (each >= 1) return 1;
  double term = std::pow(each, tries), sum = term;
  for (size_t out = 1; tries - out >= often; out++) {
    term *= static_cast<double>(tries - out + 1) / static_cast<double>(out) * (1 - each) / each;
    sum += term;
  }
  return sum;
}

// Of one rank. It may be on time now and then, in less than half of the stretches. The more times
// are tried since when it may be late, the likelier chance explains one of them.
double likely_of(const std::vector<double>& as_late, size_t least) {
  double likely = 1, tried = 0;
  for (size_t count = as_late.size(); count >= least; count /= 2, tried++) {
    std::vector<double> latest(as_late.end() - static_cast<std::ptrdiff_t>(count), as_late.end());
    std::sort(latest.begin(), latest.end());
    for (size_t often = count; 2 * often > count; often--)
      likely = std::min(likely, likely_so_often(often, count, latest[often - 1]));
  }
  return tried > 0 ? std::min(1.0, tried * likely) : 1;
}

}  // namespace

std::vector<double> likely_by_chance(const std::vector<std::vector<double>>& late, size_t least) {
  std::vector<double> likely;
  for (const std::vector<double>& of_rank : as_late(late))
    likely.push_back(likely_of(of_rank, least));
  return likely;
}

}  // namespace sennit
