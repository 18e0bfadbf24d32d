// cables.cpp: see diagnose/recorded/cables.hpp.
#include "diagnose/recorded/cables.hpp"

#include <algorithm>
#include <charconv>
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

// Where the ways of messages lead through a subnet.
class Ways {
 public:
  Ways(const IbSubnet& subnet, uint32_t comm, const JobRecording& job, Plans& plans)
      : subnet_(subnet) {
    const Fabric& fabric = *plans.fabric();
    std::map<std::string, int> by_host;
    for (const IbHost& host : ib_hosts(subnet)) by_host[host.name] = host.adapters.front().second;
    for (const Vertex& vertex : fabric.vertices)
      if (const int node = vertex.kind == VertexKind::nic ? node_of(vertex.id) : -1;
          node >= 0 && vertex.host >= 0)
        by_nic_[vertex.name] = by_host[fabric.vertices[index(vertex.host)].name] = node;
    for (int position = 0; position < plans.tree(comm)->ranks(); position++) {
      const Placement& placement = job.placements[index(plans.rank_at(comm, position))];
      const auto nic = by_nic_.find(placement.nic);
      const auto host = by_host.find(placement.host);
      adapters_.push_back(nic != by_nic_.end()    ? nic->second
                          : host != by_host.end() ? host->second
                                                  : -1);
    }
    std::vector<int> switches;
    for (size_t n = 0; n < subnet.nodes.size(); n++)
      if (subnet.nodes[n].kind == IbKind::switch_) switches.push_back(static_cast<int>(n));
    const std::vector<std::string> names = ib_switch_names(subnet, switches);
    for (size_t i = 0; i < switches.size(); i++) names_[switches[i]] = names[i];
    for (const IbHost& host : ib_hosts(subnet))
      for (const auto& [device, node] : host.adapters)
        names_[node] = fmt::format("{}/{}", host.name, device);
  }

  std::vector<IbHop> between(int from, int to) const {
    const int a = adapters_[index(from)], b = adapters_[index(to)];
    return a < 0 || b < 0 ? std::vector<IbHop>() : ib_way(subnet_, a, b);
  }

  // The adapters of a group, and the switches on ways between two of its members.
  std::set<int> inside(const Group& group) const {
    std::set<int> nodes;
    for (int i = 0; i < group.size; i++) {
      nodes.insert(adapters_[index(group.first + i)]);
      for (const int apart : {1, group.size / 2})
        for (const IbHop& hop : between(group.first + i, group.first + (i + apart) % group.size))
          nodes.insert(hop.from);
    }
    return nodes;
  }

  std::string name(const IbHop& hop) const {
    return cable_name(names_.at(hop.from), hop.from_port, names_.at(hop.to), hop.to_port);
  }

 private:
  // "0x0008f10403961354"
  int node_of(const std::string& id) const {
    constexpr size_t kPrefix = 2;
    uint64_t guid = 0;
    if (id.size() <= kPrefix) return -1;
    std::from_chars(id.data() + kPrefix, id.data() + id.size(), guid, 16);
    return guid == 0 ? -1 : find_node(subnet_, guid);
  }

  const IbSubnet& subnet_;
  std::map<std::string, int> by_nic_;
  std::vector<int> adapters_;         // by position: node, or -1
  std::map<int, std::string> names_;  // by node
};

}  // namespace

std::vector<std::string> cables_above(const Fabric& fabric, const std::string& name) {
  const int vertex = fabric.find(name);
  if (vertex < 0) return {};
  const auto owner = [&](int v) {
    const int host = fabric.vertices[index(v)].host;
    return host >= 0 ? host : v;
  };
  const std::vector<int> height = heights(fabric);
  std::vector<std::string> cables;
  for (const Link& link : fabric.links) {
    const bool leaves = owner(link.from) == vertex && owner(link.to) != vertex;
    if (!leaves || height[index(link.to)] <= height[index(link.from)]) continue;
    const std::string &from = fabric.vertices[index(link.from)].name,
                      &to = fabric.vertices[index(link.to)].name;
    if (link.ports.empty()) cables.push_back(cable_name(from, 0, to, 0));
    for (const Cable& cable : link.ports)
      cables.push_back(cable_name(from, cable.from_port, to, cable.to_port));
  }
  return cables;
}

std::vector<CableTime> cable_times(const IbSubnet& subnet, const SlowLink& slow, uint32_t comm,
                                   const JobRecording& job, Plans& plans) {
  const TierTree* const tree = plans.tree(comm);
  if (!tree || !plans.fabric() || slow.tier >= 0) return {};
  const Ways ways(subnet, comm, job, plans);
  std::map<std::string, std::vector<double>> by_cable;
  for (const DirectedGroup& suspect : slow.suspects) {
    const std::set<int> inside = ways.inside(tree->groups[index(suspect.group)]);
    for (const auto& [edge, slower] : slow.edges)
      for (const IbHop& hop : ways.between(edge.first, edge.second)) {
        const bool out = inside.contains(hop.from) && !inside.contains(hop.to);
        const bool in = !inside.contains(hop.from) && inside.contains(hop.to);
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
  constexpr double kHalf = 0.5;  // of how much longer the slowest one's messages take
  std::vector<std::string> slow;
  for (const CableTime& one : times)
    if (one.slower - 1 > kHalf * (times.front().slower - 1)) slow.push_back(one.cable);
  return slow.size() < times.size() ? slow : std::vector<std::string>();
}

}  // namespace sennit::diagnose
