// fabric_tree.cpp: see collectives/fabric_tree.hpp.
#include "collectives/fabric_tree.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/arithmetic.hpp"
#include "base/index.hpp"

namespace sennit {
namespace {

// Work to do: `leader`, which is in child `own`, serves children [begin, end) of `group`.
struct Unserved {
  int32_t group, begin, end, own, leader;
};

}  // namespace

FabricTree::FabricTree(const TierTree& tree, int root, int fan_out) : nodes_(index(tree.ranks())) {
  const auto group_at = [&](int32_t g) -> const Group& { return tree.groups[index(g)]; };
  std::vector<Unserved> work;
  const auto enter = [&](int32_t group, int32_t leader) {
    const Group& g = group_at(group);
    if (g.children == 0) return;
    const int32_t own = leader == g.first ? g.first_child : tree.child_at(group, leader);
    work.push_back({group, g.first_child, g.first_child + g.children, own, leader});
  };
  const auto serve = [&](const Unserved& run, int32_t begin, int32_t end) {
    const int32_t leader = group_at(begin).first;
    Node& node = nodes_[index(leader)];
    node.parent = run.leader;
    node.group = run.group;
    node.led = begin;
    node.led_by_parent = run.own;
    node.begin = leader;
    node.end = group_at(end - 1).first + group_at(end - 1).size;
    order_.push_back(leader);
    if (end - begin > 1 || group_at(begin).children > 0)
      work.push_back({run.group, begin, end, begin, leader});
  };
  const auto serve_in_parts = [&](const Unserved& run, int32_t begin, int32_t end, int32_t parts) {
    for (int32_t i = 0; i < parts; i++)
      serve(run, begin + static_cast<int32_t>(int64_t{end - begin} * i / parts),
            begin + static_cast<int32_t>(int64_t{end - begin} * (i + 1) / parts));
  };

  nodes_[index(root)] = {.begin = 0, .end = tree.ranks()};
  order_.push_back(root);
  enter(0, root);
  // first in, first out: a leader's farther groups come before its nearer ones
  for (size_t i = 0; i < work.size(); i++) {
    const Unserved run = work[i];
    const int32_t left = run.own - run.begin, right = run.end - run.own - 1;
    int32_t left_parts = left, right_parts = right;
    if (left + right > fan_out) {
      left_parts = (fan_out * left + (left + right) / 2) / (left + right);
      if (left > 0) left_parts = std::clamp(left_parts, 1, right > 0 ? fan_out - 1 : fan_out);
      right_parts = fan_out - left_parts;
    }
    serve_in_parts(run, run.own + 1, run.end, std::min(right, right_parts));
    serve_in_parts(run, run.begin, run.own, std::min(left, left_parts));
    enter(run.own, run.leader);
  }

  list_children();
}

// From everybody's parent, in the order in which they were served.
void FabricTree::list_children() {
  for (const int32_t p : order_)
    if (const int32_t parent = nodes_[index(p)].parent; parent >= 0)
      nodes_[index(parent)].children++;
  uint32_t next = 0;
  for (Node& node : nodes_) {
    node.first_child = next;
    next += node.children;
    node.children = 0;
  }
  children_.resize(next);
  for (const int32_t p : order_)
    if (const int32_t parent = nodes_[index(p)].parent; parent >= 0) {
      Node& node = nodes_[index(parent)];
      children_[node.first_child + node.children++] = p;
    }
}

GroupRates FabricTree::to_leaders(const TierTree& tree, GroupRates rates) const {
  const int root = order_.front();
  for (size_t i = tree.groups.size(); i-- > 1;) {  // children come after their parents
    const Group& g = tree.groups[i];
    if (g.children == 0) continue;
    const bool holds_root = root >= g.first && root < g.first + g.size;
    const size_t led = index(holds_root ? tree.child_at(static_cast<int>(i), root) : g.first_child);
    rates.egress[i] = std::min(rates.egress[i], rates.egress[led]);
    rates.ingress[i] = std::min(rates.ingress[i], rates.ingress[led]);
  }
  return rates;
}

std::vector<uint32_t> FabricTree::kinds(const TierTree& tree) const {
  const auto way = [&](int32_t p) {
    return static_cast<uint64_t>(tree.crossing_tier(p, node(p).parent));
  };
  std::vector<uint64_t> look(nodes_.size(), 0);
  for (size_t i = order_.size(); i-- > 0;) {  // children before their parents
    uint64_t& hash = look[index(order_[i])];
    for (const int32_t child : children(order_[i]))
      hash = mix(hash, mix(look[index(child)], way(child)));
  }
  std::unordered_map<uint64_t, uint32_t> number;
  std::vector<uint32_t> kinds(nodes_.size());
  for (const int32_t p : order_) {
    uint64_t& hash = look[index(p)];
    if (const int32_t parent = node(p).parent; parent >= 0)
      hash = mix(mix(hash, look[index(parent)]), way(p));
    kinds[index(p)] = number.try_emplace(hash, static_cast<uint32_t>(number.size())).first->second;
  }
  return kinds;
}

int fan_out(const Parameters& parameters) {
  return parameters.radices.empty() ? 2 : std::max<int>(2, parameters.radices[0]);
}

std::vector<uint16_t> different_fan_outs(const TierTree& tree, std::span<const uint16_t> wanted,
                                         bool without_root) {
  int32_t most = 0;
  for (size_t i = without_root ? 1 : 0; i < tree.groups.size(); i++)
    most = std::max(most, tree.groups[i].children - 1);
  std::vector<uint16_t> different;
  for (const uint16_t k : wanted)
    if (different.empty() || different.back() < most) different.push_back(k);
  return different;
}

int FabricTree::most_children() const {
  uint32_t most = 0;
  for (const Node& node : nodes_) most = std::max(most, node.children);
  return static_cast<int>(most);
}

}  // namespace sennit
