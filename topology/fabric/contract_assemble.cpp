// contract_assemble.cpp: groups in the making, laid out as a TierTree: children in the order of
// their least rank, so that a job that already is in fabric order keeps its order; groups breadth
// first; orders numbered as tiers. Cost: O(groups log groups).
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

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
  const auto node = [&](int i) -> const Node& { return nodes[index(i)]; };
  std::vector<int> queue = {root};  // breadth first; the place in it is the group's index
  std::vector<int> parents = {-1};
  TierTree tree;
  for (size_t i = 0; i < queue.size(); i++) {
    const Node& from = node(queue[i]);
    Group group;
    group.parent = parents[i];
    group.children = static_cast<int32_t>(from.children.size());
    group.first_child = from.children.empty() ? -1 : static_cast<int32_t>(queue.size());
    group.egress = from.egress;
    group.ingress = from.ingress;
    group.planes = static_cast<uint8_t>(from.planes);
    group.latency_ns = from.latency_ns;
    group.name = from.name;
    tree.groups.push_back(std::move(group));
    std::vector<int> children = from.children;
    std::sort(children.begin(), children.end(),
              [&](int a, int b) { return node(a).least_rank < node(b).least_rank; });
    for (const int child : children) {
      queue.push_back(child);
      parents.push_back(static_cast<int>(i));
    }
  }

  std::map<int, std::map<std::string, int>> names = {{Node::kRank, {}}};  // by order
  for (const int i : queue) {
    names[node(i).order];
    if (!node(i).tier.empty()) names[node(i).order][node(i).tier]++;
  }
  if (names.size() > 255)
    return invalid(fmt::format("contract: {} tiers, at most 255", names.size()));
  std::map<int, uint8_t> tier_of_order;
  for (const auto& [order, given] : names) {
    const size_t tier = tree.tiers.size();
    tier_of_order[order] = static_cast<uint8_t>(tier);
    const std::string common = common_name(given);
    tree.tiers.push_back(
        {common.empty() ? default_name(order, tier, order == node(root).order) : common});
  }
  for (size_t i = 0; i < queue.size(); i++)
    tree.groups[i].tier = tier_of_order[node(queue[i]).order];

  // Depth first, the leaves are in fabric order.
  std::vector<int> stack = {0};
  while (!stack.empty()) {
    const Group& group = tree.groups[index(stack.back())];
    const int i = stack.back();
    stack.pop_back();
    if (group.children == 0) tree.rank_of_position.push_back(node(queue[index(i)]).rank);
    for (int c = group.first_child + group.children - 1;
         group.children > 0 && c >= group.first_child; c--)
      stack.push_back(c);
  }
  tree.finish();
  const bool planes = std::any_of(tree.groups.begin(), tree.groups.end(),
                                  [](const Group& g) { return g.planes > 1; });
  if (planes)
    for (const int32_t rank : tree.rank_of_position)
      tree.home_plane.push_back(plane_of_rank[index(rank)]);
  return tree;
}

}  // namespace sennit
