// cluster.cpp: clusters out of round trips, or of rates. See topology/probe/probe.hpp.
//
// Single linkage: pairs from near to far, each joining what it connects. The joins of one tier are
// about equally far; where the next join is clearly farther, what is joined so far is a tier. Too
// many tiers do no harm: their cuts will carry all that is asked, and they dissolve. O(n^2 log n)
// time.
#include <algorithm>
#include <map>
#include <numeric>

#include "topology/probe/cluster.hpp"

namespace sennit::probe {
namespace {

constexpr double kLeastSeparation = 1.05;  // of round trips
constexpr double kLeastRatio = 1.4;        // of rates

struct Pair {
  uint64_t distance;
  int a, b;
  bool operator<(const Pair& other) const { return distance < other.distance; }
};

class Sets {
 public:
  explicit Sets(int n) : parent_(static_cast<size_t>(n)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int find(int x) {
    while (at(x) != x) x = at(x) = at(at(x));
    return x;
  }
  void join(int a, int b) {
    a = find(a);
    b = find(b);
    at(std::max(a, b)) = std::min(a, b);
  }

 private:
  int& at(int x) { return parent_[static_cast<size_t>(x)]; }
  std::vector<int> parent_;
};

using Partition = std::vector<int>;  // by item: the lowest item of its set

}  // namespace

std::vector<Group> cluster(int items, std::span<const uint64_t> distances) {
  std::vector<Pair> pairs;
  for (int a = 0; a < items; a++)
    for (int b = a + 1; b < items; b++)
      pairs.push_back(
          {distances[static_cast<size_t>(a) * static_cast<size_t>(items) + static_cast<size_t>(b)],
           a, b});
  std::stable_sort(pairs.begin(), pairs.end());

  // Partitions from fine to coarse: what was joined before a gap.
  struct Level {
    Partition partition;
    double separation;
  };
  std::vector<Level> kept;
  Sets sets(items);
  uint64_t last = 0;
  for (const Pair& pair : pairs) {
    if (sets.find(pair.a) == sets.find(pair.b)) continue;
    const double separation =
        static_cast<double>(pair.distance) / static_cast<double>(std::max<uint64_t>(1, last));
    if (last > 0 && separation >= kLeastSeparation) {
      Level level{{}, separation};
      for (int i = 0; i < items; i++) level.partition.push_back(sets.find(i));
      kept.push_back(std::move(level));
    }
    sets.join(pair.a, pair.b);
    last = pair.distance;
  }
  std::reverse(kept.begin(), kept.end());
  // Each level's sets are groups below the set of the level above that holds them.
  std::vector<Group> groups(1);
  for (int i = 0; i < items; i++) groups[0].hosts.push_back(i);
  std::vector<size_t> group_sizes = {static_cast<size_t>(items)};
  std::vector<int> above(static_cast<size_t>(items), 0);  // by item: its group on the level above
  for (const Level& level : kept) {
    std::map<int, int> made, sizes;
    for (const int set : level.partition) sizes[set]++;
    std::vector<int> now(static_cast<size_t>(items));
    for (int i = 0; i < items; i++) {
      const auto at = static_cast<size_t>(i);
      // A set that is all of the group above is that group.
      if (static_cast<size_t>(sizes[level.partition[at]]) ==
          group_sizes[static_cast<size_t>(above[at])]) {
        now[at] = above[at];
        continue;
      }
      const auto [it, fresh] =
          made.try_emplace(level.partition[at], static_cast<int>(groups.size()));
      if (fresh) {
        groups.push_back({above[at], {}, 0, 0, level.separation});
        group_sizes.push_back(static_cast<size_t>(sizes[level.partition[at]]));
      }
      groups[static_cast<size_t>(it->second)].hosts.push_back(i);
      now[at] = it->second;
    }
    above = now;
  }
  return groups;
}

std::vector<int> nearest_sets(int items, const std::function<double(int, int)>& affinity) {
  struct Join {
    double affinity;
    int a, b;
  };
  std::vector<Join> joins;
  for (int a = 0; a < items; a++)
    for (int b = a + 1; b < items; b++) joins.push_back({affinity(a, b), a, b});
  std::stable_sort(joins.begin(), joins.end(),
                   [](const Join& x, const Join& y) { return x.affinity > y.affinity; });
  Sets sets(items);
  double last = 0;
  bool gap = false;
  for (const Join& join : joins) {
    if (sets.find(join.a) == sets.find(join.b)) continue;
    if (last > 0 && join.affinity * kLeastRatio <= last) {
      gap = true;
      break;
    }
    sets.join(join.a, join.b);
    last = join.affinity;
  }
  std::vector<int> result(static_cast<size_t>(items), 0);
  if (gap)
    for (int i = 0; i < items; i++) result[static_cast<size_t>(i)] = sets.find(i);
  return result;
}

}  // namespace sennit::probe
