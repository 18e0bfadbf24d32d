// contract_assemble.cpp: groups in the making, laid out as a TierTree: children in the order of
// their least rank, so that a job that already is in fabric order keeps its order; groups breadth
// first; orders numbered as tiers. Cost: O(groups log groups).
#include <algorithm>
#include <map>
#include <set>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit {
namespace {

std::string default_name(int order, size_t tier, bool root) {
  if (order == Node::kRank) return "rank";
  if (root) return order <= Node::kHost ? "host" : "root";  // all ranks may be on one host
  if (order == Node::kNuma) return "numa";
  if (order == Node::kHost) return "host";
  return fmt::format("tier{}", tier);
}

// The commonest name that the groups of an order have for their tier; the first in the alphabet
// among equals.
std::string common_name(const std::map<std::string, int>& names) {
  std::string best;
  int most = 0;
  for (const auto& [name, count] : names) {
    if (count <= most) continue;
    most = count;
    best = name;
  }
  return best;
}

// The tree in the making, and the groups that it is made of.
class Assembly {
 public:
  explicit Assembly(const std::vector<Node>& nodes) : nodes_(nodes) {}

  Result<TierTree> make(int root, const std::vector<uint8_t>& plane_of_rank) {
    add_groups(root);
    SENNIT_RETURN_IF_ERROR(name_tiers(node(root).order));
    order_leaves();
    tree_.finish();
    const bool planes = std::any_of(tree_.groups.begin(), tree_.groups.end(),
                                    [](const Group& g) { return g.planes > 1; });
    if (planes)
      for (const int32_t rank : tree_.rank_of_position)
        tree_.home_plane.push_back(plane_of_rank[index(rank)]);
    return std::move(tree_);
  }

 private:
  static constexpr size_t kMostTiers = 255;  // Group::tier is a byte

  const Node& node(int i) const { return nodes_[index(i)]; }

  // Breadth first, children by their least rank.
  void add_groups(int root) {
    queue_ = {root};
    std::vector<int> parents = {-1};
    for (size_t i = 0; i < queue_.size(); i++) {
      const Node& from = node(queue_[i]);
      Group group;
      group.parent = parents[i];
      group.children = static_cast<int32_t>(from.children.size());
      group.first_child = from.children.empty() ? -1 : static_cast<int32_t>(queue_.size());
      group.egress = from.egress;
      group.ingress = from.ingress;
      group.planes = static_cast<uint8_t>(from.planes);
      group.cables = static_cast<uint16_t>(std::clamp(from.cables, 1, int{UINT16_MAX}));
      group.latency_ns = from.latency_ns;
      group.up_ns = from.up_ns;
      group.across_ns = from.across_ns;
      group.up_declared = from.up_declared;
      group.switches = from.switches;
      group.wire = from.wire;
      group.name = from.name;
      tree_.groups.push_back(std::move(group));
      std::vector<int> children = from.children;
      std::sort(children.begin(), children.end(),
                [&](int a, int b) { return node(a).least_rank < node(b).least_rank; });
      for (const int child : children) {
        queue_.push_back(child);
        parents.push_back(static_cast<int>(i));
      }
    }
  }

  // A tier for each order that a group has, by the name that most of them have for it.
  Status name_tiers(int root_order) {
    std::map<int, std::map<std::string, int>> names = {{Node::kRank, {}}};  // by order
    for (const int i : queue_) {
      names[node(i).order];
      if (!node(i).tier.empty()) names[node(i).order][node(i).tier]++;
    }
    if (names.size() > kMostTiers)
      return invalid(fmt::format("contract: {} tiers, at most {}", names.size(), kMostTiers));
    std::map<int, uint8_t> tier_of_order;
    for (const auto& [order, given] : names) {
      const size_t tier = tree_.tiers.size();
      tier_of_order[order] = static_cast<uint8_t>(tier);
      const std::string common = common_name(given);
      tree_.tiers.push_back(
          {common.empty() ? default_name(order, tier, order == root_order) : common});
    }
    for (size_t i = 0; i < queue_.size(); i++)
      tree_.groups[i].tier = tier_of_order[node(queue_[i]).order];
    return {};
  }

  // Depth first, the leaves are in fabric order.
  void order_leaves() {
    std::vector<int> stack = {0};
    while (!stack.empty()) {
      const Group& group = tree_.groups[index(stack.back())];
      const int i = stack.back();
      stack.pop_back();
      if (group.children == 0) tree_.rank_of_position.push_back(node(queue_[index(i)]).rank);
      for (int c = group.first_child + group.children - 1;
           group.children > 0 && c >= group.first_child; c--)
        stack.push_back(c);
    }
  }

  const std::vector<Node>& nodes_;
  std::vector<int> queue_;  // of nodes; the place in it is the group's index
  TierTree tree_;
};

}  // namespace

Capacity narrower(const Capacity& inner, const Capacity& around) {
  if (inner.known() && around.known())
    return around.bytes_per_s < inner.bytes_per_s ? around : inner;
  Capacity one = inner.known() ? inner : around;
  if (one.known()) one.provenance = Provenance::assumed;
  return one;
}

Result<TierTree> assemble(const std::vector<Node>& nodes, int root,
                          const std::vector<uint8_t>& plane_of_rank) {
  return Assembly(nodes).make(root, plane_of_rank);
}

}  // namespace sennit
