// contract_hosts.cpp: where the ranks are: hosts with their NUMA nodes and devices, and home
// planes; see topology/fabric/contraction.hpp.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit {
namespace {

// What leads out of and into the GPUs.
struct Devices {
  explicit Devices(const Fabric& fabric)
      : of_host(fabric.vertices.size()), figures(fabric.vertices.size()) {
    for (size_t v = 0; v < fabric.vertices.size(); v++)
      if (fabric.vertices[v].kind == VertexKind::gpu && fabric.vertices[v].host >= 0)
        of_host[index(fabric.vertices[v].host)].push_back(static_cast<int>(v));
    for (const Link& link : fabric.links) {
      if (fabric.vertices[index(link.from)].kind == VertexKind::gpu) {
        Figures& gpu = figures[index(link.from)];
        if (link.capacity.bytes_per_s > gpu.out.bytes_per_s) gpu.out = link.capacity;
        gpu.latency_ns = std::max(gpu.latency_ns, link.latency_ns);
      }
      if (fabric.vertices[index(link.to)].kind == VertexKind::gpu) {
        Figures& gpu = figures[index(link.to)];
        if (link.capacity.bytes_per_s > gpu.in.bytes_per_s) gpu.in = link.capacity;
      }
    }
  }
  struct Figures {
    Capacity out, in;
    uint64_t latency_ns = 0;
  };
  std::vector<std::vector<int>> of_host;  // by vertex
  std::vector<Figures> figures;           // by vertex
};

// The ranks of one host: by NUMA node where all say theirs and these differ.
int make_host(const std::string& name, const std::vector<int>& members,
              const std::vector<Placement>& ranks, const Devices& devices, int host,
              std::vector<Node>* nodes) {
  std::map<int, std::vector<int>> by_numa;  // NUMA node -> leaves
  for (size_t i = 0; i < members.size(); i++) {
    Node leaf;
    leaf.rank = leaf.least_rank = members[i];
    if (host >= 0 && i < devices.of_host[index(host)].size()) {  // the i-th rank uses the i-th GPU
      const Devices::Figures& gpu = devices.figures[index(devices.of_host[index(host)][i])];
      leaf.egress = gpu.out;
      leaf.ingress = gpu.in;
      leaf.up_ns = gpu.latency_ns;
    }
    by_numa[ranks[index(members[i])].numa].push_back(static_cast<int>(nodes->size()));
    nodes->push_back(std::move(leaf));
  }
  const bool by_node = by_numa.size() > 1 && by_numa.begin()->first >= 0;
  std::vector<int> children;
  for (const auto& [numa, leaves] : by_numa) {
    if (!by_node || leaves.size() == 1) {
      children.insert(children.end(), leaves.begin(), leaves.end());
      continue;
    }
    children.push_back(add_group(nodes, Node::kNuma, leaves));
    nodes->back().name = fmt::format("{}/numa{}", name, numa);
  }
  const int node = children.size() == 1 ? children[0] : add_group(nodes, Node::kHost, children);
  (*nodes)[index(node)].name = name;
  return node;
}

// Of the NIC that a rank named, with or without "HOST/"; else of one near its NUMA node; else in
// turn.
int home_rail(const Fabric& fabric, const Placement& rank, int host,
              const std::vector<std::pair<int, int>>& devices,
              const std::vector<std::set<int>>& near, int turn) {
  const std::string& host_name = fabric.vertices[index(host)].name;
  const std::string numa = fmt::format("{}/numa{}", host_name, rank.numa);
  std::vector<int> all;
  std::vector<int> local;
  for (const auto& [device, rail] : devices) {
    const std::string& name = fabric.vertices[index(device)].name;
    if (!rank.nic.empty() &&
        (name == rank.nic || name == fmt::format("{}/{}", host_name, rank.nic)))
      return rail;
    all.push_back(rail);
    for (const int node : near[index(device)])
      if (fabric.vertices[index(node)].name == numa) local.push_back(rail);
  }
  const std::vector<int>& choice = local.empty() ? all : local;
  return choice[index(turn) % choice.size()];
}

}  // namespace

int add_group(std::vector<Node>* nodes, int order, const std::vector<int>& children) {
  Node group;
  group.order = order;
  group.children = children;
  group.least_rank = (*nodes)[index(children[0])].least_rank;
  for (const int child : children) {
    group.least_rank = std::min(group.least_rank, (*nodes)[index(child)].least_rank);
    group.wire = slower(group.wire, (*nodes)[index(child)].wire);
  }
  nodes->push_back(std::move(group));
  return static_cast<int>(nodes->size()) - 1;
}

Hosts make_hosts(const Fabric& fabric, const std::vector<Placement>& ranks,
                 std::vector<Node>* nodes) {
  HostIndex known;
  for (size_t v = 0; v < fabric.vertices.size(); v++)
    if (fabric.vertices[v].kind == VertexKind::host)
      known.add(fabric.vertices[v].name, static_cast<int>(v));
  Hosts hosts;
  hosts.ranks.resize(fabric.vertices.size());
  hosts.node.assign(fabric.vertices.size(), -1);
  std::map<std::string, std::vector<int>> strangers;
  for (size_t r = 0; r < ranks.size(); r++) {
    const int host = known.find(ranks[r].host);
    (host < 0 ? strangers[ranks[r].host] : hosts.ranks[index(host)]).push_back(static_cast<int>(r));
  }
  const Devices devices(fabric);
  for (size_t v = 0; v < hosts.ranks.size(); v++)
    if (!hosts.ranks[v].empty())
      hosts.node[v] = make_host(fabric.vertices[v].name, hosts.ranks[v], ranks, devices,
                                static_cast<int>(v), nodes);
  for (const auto& [name, members] : strangers)
    hosts.strangers.push_back(make_host(name, members, ranks, devices, -1, nodes));
  return hosts;
}

HomePlanes make_home_planes(const Fabric& fabric, const HostGraph& network,
                            const std::vector<Placement>& ranks, const Hosts& hosts) {
  HomePlanes home;
  home.planes.assign(fabric.vertices.size(), 1);
  home.of_rank.assign(ranks.size(), 0);
  // NIC -> the NUMA nodes it is linked with
  std::vector<std::set<int>> near(fabric.vertices.size());
  for (const Link& link : fabric.links)
    if (fabric.vertices[index(link.to)].kind == VertexKind::nic &&
        fabric.vertices[index(link.from)].kind == VertexKind::numa)
      near[index(link.to)].insert(link.from);
  // By host: NIC (or the host itself) and the switch that it leads to, or the plane that its link
  // names.
  std::vector<std::set<std::pair<int, int>>> rails(fabric.vertices.size());
  for (const HostGraph::Edge& edge : network.edges)
    if (fabric.vertices[index(edge.to)].kind == VertexKind::switch_)
      rails[index(edge.from)].emplace(edge.from_device,
                                      network.planes_given ? edge.plane : edge.to);
  std::map<int, int> number;  // of a rail, the same in all hosts
  for (size_t v = 0; v < hosts.ranks.size(); v++) {
    if (hosts.ranks[v].empty() || rails[v].empty()) continue;
    std::set<int> distinct;
    std::set<int> taken;
    for (const auto& [device, rail] : rails[v]) {
      distinct.insert(rail);
      if (const auto entry = number.find(rail); entry != number.end()) taken.insert(entry->second);
    }
    for (const auto& [device, rail] : rails[v]) {
      if (number.count(rail) != 0) continue;
      int next = 0;
      while (taken.count(next) != 0) next++;
      taken.insert(next);
      number.emplace(rail, next);
    }
    home.planes[v] = std::min<int>(static_cast<int>(distinct.size()), 255);
    const std::vector<std::pair<int, int>> devices(rails[v].begin(), rails[v].end());
    for (size_t i = 0; i < hosts.ranks[v].size() && distinct.size() > 1; i++) {
      const int rank = hosts.ranks[v][i];
      const int rail = home_rail(fabric, ranks[index(rank)], static_cast<int>(v), devices, near,
                                 static_cast<int>(i));
      home.of_rank[index(rank)] =
          static_cast<uint8_t>(std::min(number.at(rail), home.planes[v] - 1));
    }
  }
  return home;
}

}  // namespace sennit
