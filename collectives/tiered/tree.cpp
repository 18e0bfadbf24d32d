// tree.cpp: see collectives/tiered/tree.hpp.
#include "collectives/tiered/tree.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "base/arithmetic.hpp"
#include "base/index.hpp"

namespace sennit::tiered {
namespace {

// The radix asked for, or a larger one, less than twice as large, that cuts `fanout` into groups of
// equal size where the one asked for does not: of three racks one exchange among three, not of two
// and then with the third.
uint32_t even_radix(uint32_t fanout, uint32_t radix) {
  for (uint32_t r = radix; r < 2 * radix; r++)
    if (fanout % ((fanout + r - 1) / r) == 0) return r;
  return radix;
}

// Radices of the stages of every tier, by the tier of the group whose children exchange. The list
// is used up from the innermost tier outwards, each tier taking as many as its largest fan-out
// needs; the last one repeats.
std::vector<std::vector<uint32_t>> radices_by_tier(std::span<const FanOut> fan_outs,
                                                   std::span<const uint16_t> radices) {
  std::vector<uint32_t> widest;
  for (const FanOut& f : fan_outs) {  // ascending
    widest.resize(f.tier + size_t{1}, 0);
    widest.back() = static_cast<uint32_t>(f.children);
  }
  std::vector<std::vector<uint32_t>> result(widest.size());
  size_t next = 0;
  for (size_t tier = 0; tier < widest.size(); tier++) {
    uint32_t left = widest[tier];
    while (left > 1) {
      const uint32_t radix =
          radices.empty()
              ? left
              : std::min(left,
                         even_radix(left, std::max<uint32_t>(
                                              2, radices[std::min(next, radices.size() - 1)])));
      next++;
      result[tier].push_back(radix);
      left = (left + radix - 1) / radix;
    }
  }
  return result;
}

// How many groups there are in each layer between a group's children (layer 0) and the group (the
// last: 1).
std::vector<int32_t> layers(int32_t children, std::span<const uint32_t> radices) {
  std::vector<int32_t> counts{children};
  for (const uint32_t radix : radices) {
    if (counts.back() == 1) break;
    counts.push_back(
        static_cast<int32_t>((static_cast<uint32_t>(counts.back()) + radix - 1) / radix));
  }
  return counts;
}

int32_t even_cut(int32_t k, int32_t parts, int32_t whole) {
  return static_cast<int32_t>(int64_t{k} * whole / parts);
}

// Of one node, beside its children: rates, tier + 1, latency, wiring, weight and blocks.
using OwnKey = std::array<uint64_t, 7>;

// `children`: each is a shape and how many of it there are in a row.
Shape shape_of(const StageNode& node, const OwnKey& own, std::span<const uint64_t> children,
               std::span<const Shape> known) {
  Shape shape;
  shape.size = static_cast<uint32_t>(node.size);
  shape.fanout = static_cast<uint32_t>(node.children);
  shape.out_rate = own[0];
  shape.in_rate = own[1];
  shape.tier = static_cast<int>(own[2]) - 1;
  shape.weight = own[5];
  shape.blocks = static_cast<uint32_t>(own[6]);
  for (const uint64_t c : children) {
    const auto child = static_cast<uint32_t>(c >> 32), many = static_cast<uint32_t>(c);
    shape.children.emplace_back(child, many);
    shape.weight += known[child].weight * many;
    shape.blocks += known[child].blocks * many;
  }
  return shape;
}

struct KeyHash {
  size_t operator()(const std::vector<uint64_t>& key) const {
    uint64_t hash = key.size();
    for (const uint64_t x : key) hash = mix(hash, x);
    return hash;
  }
};

}  // namespace

std::vector<FanOut> fan_outs(const TierTree& tree) {
  std::vector<FanOut> all;
  for (const Group& g : tree.groups)
    if (const FanOut f{g.tier, g.children}; f.children > 0 && (all.empty() || all.back() != f))
      all.push_back(f);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Cuts cuts(std::span<const FanOut> fan_outs, std::span<const uint16_t> radices) {
  const auto by_tier = radices_by_tier(fan_outs, radices);
  Cuts result;
  for (const auto& of_tier : by_tier) result.stages += of_tier.size();
  for (const FanOut& f : fan_outs) result.layers.push_back(layers(f.children, by_tier[f.tier]));
  return result;
}

StageTree::StageTree(const TierTree& tree, const Request& request,
                     std::span<const uint16_t> radices, const GroupRates& rates) {
  make_nodes(tree, radices);
  make_shapes(tree, request, rates);
}

void StageTree::make_nodes(const TierTree& tree, std::span<const uint16_t> radices) {
  const auto by_tier = radices_by_tier(fan_outs(tree), radices);
  struct InLayer {
    int32_t layer, at;  // within the real group; the last layer: the group itself
  };
  std::vector<InLayer> places;
  nodes_.reserve(tree.groups.size());
  places.reserve(tree.groups.size());
  leaf_of_position_.assign(index(tree.ranks()), 0);
  const auto add = [&](int32_t parent, int32_t group, InLayer place) {
    StageNode node;
    node.parent = parent;
    node.depth = parent < 0 ? 0 : nodes_[index(parent)].depth + 1;
    node.real = group;
    nodes_.push_back(node);
    places.push_back(place);
  };
  // Few groups differ in tier and fan-out.
  std::map<std::pair<uint8_t, int32_t>, std::vector<int32_t>> layers_known;
  const auto layers_of = [&](const Group& g) -> const std::vector<int32_t>& {
    auto& counts = layers_known[{g.tier, g.children}];
    if (counts.empty()) counts = layers(g.children, by_tier[g.tier]);
    return counts;
  };
  add(-1, 0, {-1, 0});
  for (size_t i = 0; i < nodes_.size(); i++) {
    const int32_t real = nodes_[i].real;
    const Group& g = tree.groups[index(real)];
    const bool whole = places[i].layer < 0;
    if (whole) nodes_[i].group = real;
    if (g.children == 0) {
      nodes_[i].first = g.first;
      leaf_of_position_[index(g.first)] = static_cast<int32_t>(i);
      continue;
    }
    const auto& counts = layers_of(g);
    const int32_t layer = whole ? static_cast<int32_t>(counts.size()) - 1 : places[i].layer;
    const int32_t at = whole ? 0 : places[i].at;
    const int32_t begin = even_cut(at, counts[index(layer)], counts[index(layer - 1)]);
    const int32_t end = even_cut(at + 1, counts[index(layer)], counts[index(layer - 1)]);
    nodes_[i].first_child = static_cast<int32_t>(nodes_.size());
    nodes_[i].children = end - begin;
    for (int32_t child = begin; child < end; child++) {
      InLayer place{layer - 1, child};
      while (place.layer > 0) {  // a virtual group of one is that one
        const int32_t above = counts[index(place.layer)], below = counts[index(place.layer - 1)];
        const int32_t b = even_cut(place.at, above, below);
        if (even_cut(place.at + 1, above, below) - b > 1) break;
        place = {place.layer - 1, b};
      }
      if (place.layer == 0)
        add(static_cast<int32_t>(i), g.first_child + place.at, {-1, 0});
      else
        add(static_cast<int32_t>(i), real, place);
    }
  }
  nodes_.shrink_to_fit();
  add_up_sizes();
}

// From the leaves, which know theirs; children come after their parents.
void StageTree::add_up_sizes() {
  for (size_t i = nodes_.size(); i-- > 0;) {
    StageNode& node = nodes_[i];
    if (node.children == 0) continue;
    node.first = nodes_[index(node.first_child)].first;
    node.size = 0;
    for (int32_t c = node.first_child; c < node.first_child + node.children; c++)
      node.size += nodes_[index(c)].size;
  }
}

void StageTree::make_shapes(const TierTree& tree, const Request& request, const GroupRates& rates) {
  const bool one_owner =
      request.collective == Collective::broadcast || request.collective == Collective::reduce;
  uint64_t total = 0;
  for (const uint64_t count : request.counts) total += count;
  const bool counted = !one_owner && total > 0;
  std::unordered_map<std::vector<uint64_t>, uint32_t, KeyHash> known;
  // Nodes mostly are as one before: ranks as the rank before, groups as the group before.
  OwnKey rank_before{};
  std::vector<uint64_t> key, before;
  uint32_t shape_of_rank = 0, shape_before = 0;
  for (size_t i = nodes_.size(); i-- > 0;) {
    StageNode& node = nodes_[i];
    const bool real = node.group >= 0, leaf = node.children == 0;
    const uint64_t blocks = leaf && (!one_owner || node.first == request.root) ? 1 : 0;
    const uint64_t weight = leaf && counted ? request.counts[index(node.first)] : blocks;
    if (leaf && counted && weight != request.counts[0]) weighted_ = true;
    const OwnKey own{real ? rates.egress[index(node.group)] : 0,
                     real ? rates.ingress[index(node.group)] : 0,
                     real ? tree.groups[index(node.group)].tier + uint64_t{1} : 0,
                     tree.groups[index(node.real)].latency_ns,
                     tree.groups[index(node.real)].wiring(),
                     weight,
                     blocks};
    if (leaf && own == rank_before) {
      node.shape = shape_of_rank;
      continue;
    }
    key.assign(own.begin(), own.end());
    const size_t fixed = key.size();
    for (int32_t c = node.first_child; c < node.first_child + node.children; c++) {
      const uint64_t child = nodes_[index(c)].shape;
      if (key.size() > fixed && key.back() >> 32 == child)
        key.back()++;
      else
        key.push_back(child << 32 | 1);
    }
    if (key == before) {
      node.shape = shape_before;
      continue;
    }
    const auto [it, is_new] = known.try_emplace(key, static_cast<uint32_t>(shapes_.size()));
    node.shape = it->second;
    if (leaf) {
      rank_before = own;
      shape_of_rank = node.shape;
    } else {
      before = key;
      shape_before = node.shape;
    }
    if (!is_new) continue;
    shapes_.push_back(shape_of(node, own, std::span(key).subspan(fixed), shapes_));
  }
}

}  // namespace sennit::tiered
