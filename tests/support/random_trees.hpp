// random_trees.hpp: random unequal tier trees for property tests: any depth up to four tiers,
// leaves at any depth, capacities known, unknown or mixed.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// A tree of exactly `ranks` ranks.
inline TierTree random_tree(std::mt19937_64& random, int ranks) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<uint64_t>(limit));
  };
  TierTree tree;
  const char* names[] = {"rank", "host", "rack", "pod", "root"};
  const int top = ranks == 1 ? 0 : 1 + below(4);
  for (int t = 0; t <= top; t++) tree.tiers.push_back({t == top && t > 0 ? "root" : names[t]});
  Group root;
  root.size = ranks;
  root.tier = static_cast<uint8_t>(top);
  tree.groups.push_back(root);
  const int known = below(3);  // none, all, some
  for (size_t i = 0; i < tree.groups.size(); i++) {
    const Group g = tree.groups[i];
    if (g.size == 1) continue;
    // At tier 1 all children are ranks; above, cuts at random places.
    std::vector<int> cuts = {0, g.size};
    const int parts = g.tier == 1 ? g.size : 2 + below(std::min(g.size, 6) - 1);
    if (g.tier == 1)
      for (int c = 1; c < g.size; c++) cuts.push_back(c);
    while (static_cast<int>(cuts.size()) <= parts) {
      cuts.push_back(1 + below(g.size - 1));
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    }
    std::sort(cuts.begin(), cuts.end());
    tree.groups[i].first_child = static_cast<int32_t>(tree.groups.size());
    tree.groups[i].children = static_cast<int32_t>(cuts.size()) - 1;
    tree.groups[i].latency_ns = random() % 2 * (1 + random() % 50'000);
    for (size_t c = 0; c + 1 < cuts.size(); c++) {
      Group child;
      child.parent = static_cast<int32_t>(i);
      child.size = cuts[c + 1] - cuts[c];
      child.tier = static_cast<uint8_t>(child.size == 1 ? 0 : 1 + below(g.tier - 1));
      for (Capacity* capacity : {&child.egress, &child.ingress})
        if (known == 1 || (known == 2 && random() % 2))
          *capacity = {1'000'000 * (1 + random() % 1000), Provenance::declared};
      tree.groups.push_back(child);
    }
  }
  for (int p = 0; p < ranks; p++) tree.rank_of_position.push_back(p);
  std::shuffle(tree.rank_of_position.begin(), tree.rank_of_position.end(), random);
  tree.finish();
  return tree;
}

}  // namespace sennit
