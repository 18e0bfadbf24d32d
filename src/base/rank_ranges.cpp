// rank_ranges.cpp: see base/rank_ranges.hpp.
#include "base/rank_ranges.hpp"

#include <fmt/core.h>

namespace sennit {

std::string format_ranks(const std::set<int>& ranks) {
  std::string text;
  for_each_range(ranks, [&](int first, int last) {
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  });
  return text;
}

std::string name_ranks(const std::set<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", format_ranks(ranks));
}

}  // namespace sennit
