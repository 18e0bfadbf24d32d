// rank_ranges.hpp: a set of ranks as the ranges that it is made of, and as people read it.
#pragma once

#include <set>
#include <string>

namespace sennit {

// Calls visit(first, last) for each range of consecutive ranks, in ascending order.
template <typename Visit>
void for_each_range(const std::set<int>& ranks, Visit visit) {
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int first = *it;
    int last = first;
    while (++it != ranks.end() && *it == last + 1) last++;
    visit(first, last);
  }
}

// {0, 1, 2, 4} -> "0-2,4"
std::string format_ranks(const std::set<int>& ranks);
// {4} -> "rank 4", {0, 1, 2, 4} -> "ranks 0-2,4"
std::string name_ranks(const std::set<int>& ranks);

}  // namespace sennit
