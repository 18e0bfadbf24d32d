// network.cpp: which GPU stands where, what rings and gathers put on each boundary, and the time of
// the busiest. See forecast/network.hpp.
#include "forecast/network.hpp"

#include <algorithm>
#include <numeric>
#include <queue>

#include <fmt/core.h>

#include "base/index.hpp"
#include "cost/rates.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::forecast {
namespace {

// By group: its boundary lies inside of a host.
std::vector<bool> inside_hosts(const TierTree& tree) {
  std::vector<bool> inside(tree.groups.size(), false);
  for (size_t g = 1; g < tree.groups.size(); g++) {  // parents come first
    const size_t parent = index(tree.groups[g].parent);
    inside[g] = inside[parent] || tree.tiers[tree.groups[parent].tier].is_host();
  }
  return inside;
}

// The widest groups that lie inside of a single host, in fabric order: whole hosts.
std::vector<int> hosts_of(const TierTree& tree) {
  const std::vector<bool> inside = inside_hosts(tree);
  std::vector<int> hosts;
  for (int position = 0; position < tree.ranks();
       position += tree.groups[index(hosts.back())].size) {
    int group = tree.leaf_of_position[index(position)];
    while (inside[index(group)]) group = tree.groups[index(group)].parent;
    hosts.push_back(group);
  }
  return hosts;
}

}  // namespace

std::vector<Places> placements(const TierTree& tree, int gpus) {
  if (gpus > tree.ranks()) return {};
  std::vector<int> packed(index(gpus));
  std::iota(packed.begin(), packed.end(), 0);
  std::vector<Places> all = {{"packed", packed}};
  if (tree.root().children < 2) return all;
  // By turns, the next host of the outermost group that has been used least for its size.
  struct Portion {
    int size = 0, used = 0;
    std::vector<int> hosts;
    size_t next = 0;
  };
  std::vector<Portion> parts(index(tree.root().children));
  for (const int host : hosts_of(tree)) {
    Portion& part =
        parts[index(tree.child_at(0, tree.groups[index(host)].first) - tree.root().first_child)];
    part.hosts.push_back(host);
    part.size += tree.groups[index(host)].size;
  }
  const auto later = [&](size_t a, size_t b) {
    const int64_t of_a = int64_t{parts[a].used} * parts[b].size,
                  of_b = int64_t{parts[b].used} * parts[a].size;
    return of_a != of_b ? of_a > of_b : a > b;
  };
  std::priority_queue<size_t, std::vector<size_t>, decltype(later)> turns(later);
  for (size_t p = 0; p < parts.size(); p++)
    if (!parts[p].hosts.empty()) turns.push(p);
  std::vector<int> even;
  while (static_cast<int>(even.size()) < gpus) {
    const size_t turn = turns.top();
    turns.pop();
    Portion& least = parts[turn];
    const Group& host = tree.groups[index(least.hosts[least.next++])];
    least.used += host.size;
    if (least.next < least.hosts.size()) turns.push(turn);
    for (int i = 0; i < host.size && static_cast<int>(even.size()) < gpus; i++)
      even.push_back(host.first + i);
  }
  std::sort(even.begin(), even.end());
  if (even != packed) all.push_back({"even", std::move(even)});
  return all;
}

GpuFabric::GpuFabric(const TierTree& tree, double scale_up_bytes_per_s)
    : tree_(tree), within_host_(inside_hosts(tree)) {
  const CostModel cost = gpu_cost();
  for (size_t g = 0; g < tree.groups.size(); g++) {
    const Group& group = tree.groups[g];
    const auto rate = [&](const Capacity& capacity) {
      const double known = static_cast<double>(capacity.bytes_per_s);
      if (!within_host_[g] || group.children > 0 || scale_up_bytes_per_s <= 0) return known;
      return known > 0 ? std::min(known, scale_up_bytes_per_s) : scale_up_bytes_per_s;
    };
    egress_.push_back(rate(group.egress));
    ingress_.push_back(rate(group.ingress));
    const int at = static_cast<int>(g);
    const uint64_t post_ns =
        sennit::within_host(tree, at) ? cost.shared_memory_post_ns : cost.post_ns;
    message_s_.push_back(static_cast<double>(post_ns + planning_latency_ns(tree, at, cost)) * 1e-9);
  }
}

Load GpuFabric::gather_load(const Groups& groups, const std::vector<int>& positions) const {
  Load load{std::vector<double>(tree_.groups.size(), 0),
            std::vector<double>(tree_.groups.size(), 0)};
  std::vector<int> members(tree_.groups.size(), 0), touched;
  for (const std::vector<int>& group : groups) {
    touched.clear();
    for (const int gpu : group)
      for (int g = tree_.leaf_of_position[index(positions[index(gpu)])]; g > 0;
           g = tree_.groups[index(g)].parent)
        if (members[index(g)]++ == 0) touched.push_back(g);
    const double all = static_cast<double>(group.size());
    for (const int g : touched) {
      const double inside = members[index(g)];
      members[index(g)] = 0;
      if (inside >= all) continue;
      load.in[index(g)] += 1 - inside / all;
      load.out[index(g)] += inside / all;
    }
  }
  return load;
}

Load GpuFabric::ring_load(const Groups& groups, const std::vector<int>& positions) const {
  Load load{std::vector<double>(tree_.groups.size(), 0),
            std::vector<double>(tree_.groups.size(), 0)};
  for (const std::vector<int>& group : groups)
    for (size_t i = 0; group.size() > 1 && i < group.size(); i++) {
      const int from = positions[index(group[i])],
                to = positions[index(group[(i + 1) % group.size()])];
      const int common = tree_.common_group(from, to);
      for (int g = tree_.leaf_of_position[index(from)]; g != common;
           g = tree_.groups[index(g)].parent)
        load.out[index(g)] += 1;
      for (int g = tree_.leaf_of_position[index(to)]; g != common;
           g = tree_.groups[index(g)].parent)
        load.in[index(g)] += 1;
    }
  return load;
}

SetBound GpuFabric::bound(const Load& load, double bytes_in, double bytes_out) const {
  return bound(load, bytes_in, bytes_out, 1, 1);
}

SetBound GpuFabric::bound(const Load& load, double bytes_in, double bytes_out, double within_host,
                          double between_hosts) const {
  SetBound result;
  result.tier_seconds.assign(tree_.tiers.size(), 0);
  for (size_t g = 1; g < tree_.groups.size(); g++) {
    const double efficiency = within_host_[g] ? within_host : between_hosts;
    double seconds = 0;
    if (egress_[g] > 0) seconds = load.out[g] * bytes_out / (egress_[g] * efficiency);
    if (ingress_[g] > 0)
      seconds = std::max(seconds, load.in[g] * bytes_in / (ingress_[g] * efficiency));
    double& of_tier = result.tier_seconds[tree_.groups[g].tier];
    of_tier = std::max(of_tier, seconds);
    if (seconds > result.seconds) {
      result.seconds = seconds;
      result.group = static_cast<int>(g);
    }
  }
  return result;
}

double GpuFabric::message_s(const Groups& groups, const std::vector<int>& positions) const {
  double most = 0;
  for (const std::vector<int>& group : groups)
    for (size_t i = 1; i < group.size(); i++) {
      const int common =
          tree_.common_group(positions[index(group[i - 1])], positions[index(group[i])]);
      most = std::max(most, message_s_[index(common)]);
    }
  return most;
}

std::vector<Spread> GpuFabric::spread(const Groups& groups,
                                      const std::vector<int>& positions) const {
  std::vector<Spread> spreads;
  std::vector<int> seen(tree_.groups.size(), -1);
  std::vector<int> counts(tree_.tiers.size());
  std::vector<bool> present(tree_.tiers.size(), false);
  for (const Group& group : tree_.groups) present[group.tier] = true;
  for (size_t t = 1; t + 1 < tree_.tiers.size(); t++)
    if (present[t]) spreads.push_back({static_cast<int>(t), tree_.ranks(), 0});
  for (size_t i = 0; i < groups.size(); i++) {
    std::fill(counts.begin(), counts.end(), 0);
    for (const int gpu : groups[i])
      for (int g = tree_.leaf_of_position[index(positions[index(gpu)])]; g > 0;
           g = tree_.groups[index(g)].parent)
        if (seen[index(g)] != static_cast<int>(i)) {
          seen[index(g)] = static_cast<int>(i);
          counts[tree_.groups[index(g)].tier]++;
        }
    for (Spread& spread : spreads) {
      spread.least = std::min(spread.least, counts[index(spread.tier)]);
      spread.most = std::max(spread.most, counts[index(spread.tier)]);
    }
  }
  return spreads;
}

std::string unknown_tiers(const TierTree& tree) {
  const std::vector<bool> inside = inside_hosts(tree);
  std::vector<bool> unknown(tree.tiers.size(), false);
  for (size_t g = 1; g < tree.groups.size(); g++)
    if (!inside[g] && (!tree.groups[g].egress.known() || !tree.groups[g].ingress.known()))
      unknown[tree.groups[g].tier] = true;
  std::string text;
  for (size_t t = 0; t < tree.tiers.size(); t++)
    if (unknown[t]) text += (text.empty() ? "" : ", ") + tree.tiers[t].name;
  return text;
}

std::string assumed_latencies(const TierTree& tree) {
  const CostModel cost = gpu_cost();
  const std::pair<LatencySource, const char*> sources[] = {
      {LatencySource::within_host, "within a host"},
      {LatencySource::rdma, "over RDMA"},
      {LatencySource::sockets, "over sockets"}};
  std::string text;
  for (const auto& [source, where] : sources)
    for (size_t g = 0; g < tree.groups.size(); g++) {
      const int at = static_cast<int>(g);
      if (tree.is_leaf(at) || latency_source(tree, at, cost) != source) continue;
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                          format_time(planning_latency_ns(tree, at, cost)), where);
      break;  // a GPU's messages take as long on any way of a kind
    }
  return text;
}

}  // namespace sennit::forecast
