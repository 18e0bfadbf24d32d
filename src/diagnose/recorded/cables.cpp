// cables.cpp: see diagnose/recorded/cables.hpp.
#include "diagnose/recorded/cables.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/median.hpp"
#include "topology/sources/ibnet/names.hpp"
#include "topology/sources/ibnet/ways.hpp"

namespace sennit::diagnose {
namespace {

std::string cable_name(const std::string& from, int from_port, const std::string& to, int to_port) {
  if (from_port == 0 && to_port == 0) return fmt::format("{} to {}", from, to);
  return fmt::format("{} port {} to {} port {}", from, from_port, to, to_port);
}

// By vertex, how many links it is away from a host or what is in one; -1: no host is near.
std::vector<int> heights(const Fabric& fabric) {
  std::vector<int> height(fabric.vertices.size(), -1);
  std::vector<std::vector<int>> above(height.size());
  for (const Link& link : fabric.links) above[index(link.from)].push_back(link.to);
  std::vector<int> queue;
  for (size_t v = 0; v < height.size(); v++) {
    if (fabric.vertices[v].kind == VertexKind::switch_) continue;
    height[v] = 0;
    queue.push_back(static_cast<int>(v));
  }
  for (size_t i = 0; i < queue.size(); i++)
    for (const int other : above[index(queue[i])]) {
      if (height[index(other)] >= 0) continue;
      height[index(other)] = height[index(queue[i])] + 1;
      queue.push_back(other);
    }
  return height;
}

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

// Where the ways of messages lead through a subnet.
class Ways {
 public:
  Ways(const IbSubnet& subnet, uint32_t comm, const JobRecording& job, Plans& plans)
      : subnet_(subnet), tree_(*plans.tree(comm)) {
    const std::vector<IbHost> hosts = ib_hosts(subnet);
    name_nodes(hosts);
    // By host, also by its short name, and by NIC: its adapters here.
    std::map<std::string, std::set<int>> adapters;
    for (const IbHost& host : hosts)
      for (const auto& [device, node] : host.adapters)
        for (const std::string& name : {host.name, short_name(host.name)}) {
          adapters[name].insert(node);
          adapters[fmt::format("{}/{}", name, device)].insert(node);
        }
    std::map<std::string, int> by_guid;
    for (const IbHost& host : hosts)
      for (const auto& [device, node] : host.adapters)
        by_guid[fmt::format("0x{:016x}", subnet.nodes[index(node)].guid)] = node;
    // The job's fabric may know a host by another name.
    std::map<std::string, std::set<int>> known;
    for (const Vertex& vertex : plans.fabric()->vertices) {
      const auto found = by_guid.find(vertex.id);
      if (vertex.kind != VertexKind::nic || vertex.host < 0 || found == by_guid.end()) continue;
      known[vertex.name] = {found->second};
      known[plans.fabric()->vertices[index(vertex.host)].name].insert(found->second);
    }
    for (auto& [name, nodes] : known) adapters[name] = std::move(nodes);
    // Which one of a host's several adapters a rank takes only the rank can say.
    const auto only = [&](const std::string& name) {
      const auto found = adapters.find(name);
      return found != adapters.end() && found->second.size() == 1 ? *found->second.begin() : -1;
    };
    for (int position = 0; position < tree_.ranks(); position++) {
      const Placement& placement = job.placements[index(plans.rank_at(comm, position))];
      int node = -1;
      for (const std::string& host : {placement.host, short_name(placement.host)}) {
        if (node < 0 && !placement.nic.empty())
          node = only(fmt::format("{}/{}", host, placement.nic));
        if (node < 0) node = only(host);
      }
      adapters_.push_back(node);
    }
  }

  std::vector<IbHop> between(int from, int to) const {
    const int a = adapters_[index(from)], b = adapters_[index(to)];
    return a < 0 || b < 0 ? std::vector<IbHop>() : ib_way(subnet_, a, b);
  }

  // The adapters of a group, and the switches on ways between two of its hosts: of all of them, or
  // of a large group of many.
  std::set<int> inside(const Group& group) const {
    constexpr int kFew = 128;
    std::set<int> nodes(adapters_.begin() + group.first,
                        adapters_.begin() + group.first + group.size);
    if (group.children == 0 || tree_.tiers[group.tier].is_host()) return nodes;
    for (int apart = 1; apart < group.size; apart = group.size <= kFew ? apart + 1 : 2 * apart)
      for (int i = 0; i < group.size; i++)
        for (const IbHop& hop : between(group.first + i, group.first + (i + apart) % group.size))
          nodes.insert(hop.from);
    return nodes;
  }

  // Of a host, the switches that it hangs on and no other host of these ranks does: the tree has no
  // boundary of their own for them.
  std::set<int> alone_above(const Group& group) const {
    std::set<int> own;
    if (group.children > 0 && !tree_.tiers[group.tier].is_host()) return own;
    for (int i = group.first; i < group.first + group.size; i++) own.insert(switch_of(i));
    for (int i = 0; i < tree_.ranks(); i++)
      if (i < group.first || i >= group.first + group.size) own.erase(switch_of(i));
    own.erase(-1);
    return own;
  }

  std::string name(const IbHop& hop) const {
    return cable_name(names_.at(hop.from), hop.from_port, names_.at(hop.to), hop.to_port);
  }

 private:
  // The first on the way from this position to any other; -1: not known.
  int switch_of(int position) const {
    for (int other = 0; other < tree_.ranks(); other++)
      if (adapters_[index(other)] != adapters_[index(position)])
        if (const std::vector<IbHop> way = between(position, other); !way.empty())
          return way.front().to;
    return -1;
  }
  void name_nodes(const std::vector<IbHost>& hosts) {
    std::vector<int> switches;
    for (size_t n = 0; n < subnet_.nodes.size(); n++)
      if (subnet_.nodes[n].kind == IbKind::switch_) switches.push_back(static_cast<int>(n));
    const std::vector<std::string> names = ib_switch_names(subnet_, switches);
    for (size_t i = 0; i < switches.size(); i++) names_[switches[i]] = names[i];
    for (const IbHost& host : hosts)
      for (const auto& [device, node] : host.adapters)
        names_[node] = fmt::format("{}/{}", host.name, device);
  }

  const IbSubnet& subnet_;
  const TierTree& tree_;
  std::vector<int> adapters_;         // by position: node, or -1
  std::map<int, std::string> names_;  // of switches and hosts' adapters, which ways lead through
};

}  // namespace

std::vector<std::string> cables_above(const Fabric& fabric, const std::string& name,
                                      const std::set<std::string>& hosts) {
  const int vertex = fabric.find(name);
  if (vertex < 0) return {};
  const auto owner = [&](int v) {
    const int host = fabric.vertices[index(v)].host;
    return host >= 0 ? host : v;
  };
  const auto has_other_host = [&](int leaf) {
    return std::any_of(fabric.links.begin(), fabric.links.end(), [&](const Link& link) {
      return link.to == leaf && owner(link.from) != vertex &&
             hosts.contains(fabric.vertices[index(owner(link.from))].name);
    });
  };
  const std::vector<int> height = heights(fabric);
  std::vector<std::string> cables;
  std::set<int> leaves;  // that a host has to itself
  const auto add = [&](int below) {
    for (const Link& link : fabric.links) {
      const Vertex &from = fabric.vertices[index(link.from)], &to = fabric.vertices[index(link.to)];
      if (owner(link.from) != below || owner(link.to) == below) continue;
      const int higher = height[index(link.to)] - height[index(link.from)];
      // A spine that a storage host hangs on is as near to a host as a leaf.
      if (higher < 0 || (higher == 0 && from.tier == to.tier)) continue;
      if (fabric.vertices[index(below)].kind != VertexKind::switch_ && !has_other_host(link.to))
        leaves.insert(link.to);
      if (link.ports.empty()) cables.push_back(cable_name(from.name, 0, to.name, 0));
      for (const Cable& cable : link.ports)
        cables.push_back(cable_name(from.name, cable.from_port, to.name, cable.to_port));
    }
  };
  add(vertex);
  for (const int leaf : leaves) add(leaf);
  return cables;
}

std::vector<CableTime> cable_times(const IbSubnet& subnet, const SlowLink& slow, uint32_t comm,
                                   const JobRecording& job, Plans& plans) {
  const TierTree* const tree = plans.tree(comm);
  if (!tree || !plans.fabric() || slow.tier >= 0) return {};
  const Ways ways(subnet, comm, job, plans);
  std::map<std::string, std::vector<double>> by_cable;
  for (const DirectedGroup& suspect : slow.suspects) {
    const Group& group = tree->groups[index(suspect.group)];
    const std::set<int> inside = ways.inside(group), above = ways.alone_above(group);
    const auto within = [&](int node) { return inside.contains(node) || above.contains(node); };
    for (const auto& [edge, slower] : slow.edges)
      for (const IbHop& hop : ways.between(edge.first, edge.second)) {
        const bool out = within(hop.from) && !inside.contains(hop.to);
        const bool in = !inside.contains(hop.from) && within(hop.to);
        if (slow.both_ways ? out || in : (suspect.egress ? out : in))
          by_cable[ways.name(hop)].push_back(slower);
      }
  }
  std::vector<CableTime> times;
  for (auto& [cable, slower] : by_cable) {
    const auto count = static_cast<int>(slower.size());
    times.push_back({cable, count, median(std::move(slower))});
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const CableTime& a, const CableTime& b) { return a.slower > b.slower; });
  return times;
}

std::vector<std::string> slow_cables(const std::vector<CableTime>& times) {
  // Of how much longer the slowest one's messages take; and than those of the others.
  constexpr double kHalf = 0.5, kApart = 1.1;
  constexpr int kLeastWays = 2;
  std::vector<std::string> slow;
  for (const CableTime& one : times)
    if (one.slower - 1 > kHalf * (times.front().slower - 1)) slow.push_back(one.cable);
  if (slow.empty() || slow.size() == times.size()) return {};
  const bool apart = times[slow.size() - 1].slower > kApart * times[slow.size()].slower;
  return apart && times.front().ways >= kLeastWays ? slow : std::vector<std::string>();
}

}  // namespace sennit::diagnose
