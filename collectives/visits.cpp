// visits.cpp: see collectives/visits.hpp.
#include "collectives/visits.hpp"

#include "base/index.hpp"

namespace sennit {
namespace {

// Of one group of each tier from the root to the ranks, or nothing where some differ.
std::vector<int> equal_sizes(const TierTree& tree) {
  std::vector<const Group*> first(tree.tiers.size(), nullptr);
  for (const Group& group : tree.groups) {
    const Group*& like = first[group.tier];
    if (!like) like = &group;
    if (group.size != like->size || group.children != like->children) return {};
    // Equal sizes are not enough: a host of two ranks may stand beside a rack of two hosts.
    for (int c = group.first_child; c < group.first_child + group.children; c++)
      if (tree.groups[index(c)].tier != tree.groups[index(like->first_child)].tier) return {};
  }
  std::vector<int> sizes;
  for (const Group* group = &tree.root();; group = &tree.groups[index(group->first_child)]) {
    sizes.push_back(group->size);
    if (group->children == 0) return sizes;
  }
}

}  // namespace

Visits::Visits(const TierTree& tree) : ranks_(tree.ranks()), sizes_(equal_sizes(tree)) {}

int Visits::to(int position, int turn) const {
  if (!turns()) return (position + turn) % ranks_;
  int there = 0;
  for (size_t i = 1; i < sizes_.size(); i++) {
    const int around = sizes_[i - 1], size = sizes_[i];
    const int children = around / size;
    there += (position % around / size + turn % around / size) % children * size;
  }
  return there;
}

int Visits::from(int position, int turn) const {
  if (!turns()) return (position - turn + ranks_) % ranks_;
  int there = 0;
  for (size_t i = 1; i < sizes_.size(); i++) {
    const int around = sizes_[i - 1], size = sizes_[i];
    const int children = around / size;
    there += (position % around / size + children - turn % around / size) % children * size;
  }
  return there;
}

}  // namespace sennit
