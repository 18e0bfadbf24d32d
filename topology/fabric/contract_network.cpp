// contract_network.cpp: a Fabric as hosts, switches and usable links with heights; see
// topology/fabric/contraction.hpp. Cost: O(vertices + links log links).
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit {
namespace {

constexpr size_t kMaxHeights = 200;

std::string_view short_name(std::string_view name) { return name.substr(0, name.find('.')); }

// Line rates of NICs, as the links between a NIC and its own host's inside say.
class LineRates {
 public:
  explicit LineRates(const Fabric& fabric, const std::vector<int>& owner)
      : out_(fabric.vertices.size()), in_(fabric.vertices.size()), nics_(fabric.vertices.size()) {
    for (const Link& link : fabric.links) {
      if (owner[index(link.from)] != owner[index(link.to)]) continue;
      if (fabric.vertices[index(link.to)].kind == VertexKind::nic)
        raise(&out_[index(link.to)], link.capacity);
      if (fabric.vertices[index(link.from)].kind == VertexKind::nic)
        raise(&in_[index(link.from)], link.capacity);
    }
    for (size_t i = 0; i < fabric.vertices.size(); i++)
      if (fabric.vertices[i].kind == VertexKind::nic)
        nics_[index(owner[i])].push_back(static_cast<int>(i));
  }
  const Capacity& of(int nic, bool out) const { return (out ? out_ : in_)[index(nic)]; }

  // All fastest NICs of a host together. Which of several serve is a guess, and marked so.
  Capacity of_host(int host, bool out) const {
    Capacity sum;
    uint64_t fastest = 0;
    for (const int nic : nics_[index(host)]) fastest = std::max(fastest, of(nic, out).bytes_per_s);
    for (const int nic : nics_[index(host)]) {
      if (fastest == 0 || of(nic, out).bytes_per_s != fastest) continue;
      sum.provenance = sum.known() ? Provenance::assumed : of(nic, out).provenance;
      sum.bytes_per_s += fastest;
    }
    return sum;
  }

 private:
  static void raise(Capacity* rate, const Capacity& said) {
    if (said.bytes_per_s > rate->bytes_per_s) *rate = said;
  }
  std::vector<Capacity> out_, in_;
  std::vector<std::vector<int>> nics_;
};

Capacity usable(const Capacity& cable, const Capacity& line_rate) {
  return !cable.known() || (line_rate.known() && line_rate.bytes_per_s < cable.bytes_per_s)
             ? line_rate
             : cable;
}

using Neighbours = std::vector<std::vector<int>>;

Neighbours neighbours_of(size_t vertices, const std::vector<HostGraph::Edge>& edges) {
  Neighbours lists(vertices);
  for (const HostGraph::Edge& edge : edges) {
    lists[index(edge.from)].push_back(edge.to);
    lists[index(edge.to)].push_back(edge.from);
  }
  for (std::vector<int>& list : lists) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return lists;
}

// Takes switches away that lead nowhere: with one neighbour at most.
void drop_dead_ends(const Fabric& fabric, std::vector<HostGraph::Edge>* edges) {
  const Neighbours neighbours = neighbours_of(fabric.vertices.size(), *edges);
  std::vector<size_t> degree;
  for (const std::vector<int>& list : neighbours) degree.push_back(list.size());
  std::vector<bool> dead(fabric.vertices.size(), false);
  std::vector<int> queue;
  const auto consider = [&](int v) {
    if (fabric.vertices[index(v)].kind != VertexKind::switch_ || dead[index(v)] ||
        degree[index(v)] > 1)
      return;
    dead[index(v)] = true;
    queue.push_back(v);
  };
  for (size_t v = 0; v < degree.size(); v++) consider(static_cast<int>(v));
  while (!queue.empty()) {
    const int v = queue.back();
    queue.pop_back();
    for (const int other : neighbours[index(v)]) {
      degree[index(other)]--;
      consider(other);
    }
  }
  std::erase_if(*edges,
                [&](const HostGraph::Edge& e) { return dead[index(e.from)] || dead[index(e.to)]; });
}

// Levels of one connected part.
class Levels {
 public:
  Levels(const Fabric& fabric, const Neighbours& neighbours)
      : fabric_(fabric), neighbours_(neighbours), level_(neighbours.size(), 0) {}

  std::vector<int> find() {
    std::vector<bool> seen(neighbours_.size(), false);
    for (size_t start = 0; start < neighbours_.size(); start++) {
      if (seen[start]) continue;
      std::vector<int> part = {static_cast<int>(start)};
      seen[start] = true;
      size_t ends = 0;
      for (size_t i = 0; i < part.size(); i++) {
        ends += neighbours_[index(part[i])].size();
        for (const int other : neighbours_[index(part[i])]) {
          if (seen[index(other)]) continue;
          seen[index(other)] = true;
          part.push_back(other);
        }
      }
      if (ends / 2 == part.size() - 1)
        peel(part);
      else
        measure(part);
    }
    return std::move(level_);
  }

 private:
  // Takes the leaves off again and again; the round in which a vertex goes is its level.
  void peel(const std::vector<int>& part) {
    std::vector<int> round;
    for (const int v : part) {
      left_[v] = neighbours_[index(v)].size();
      if (left_[v] <= 1) round.push_back(v);
    }
    for (int level = 0; !round.empty(); level++) {
      std::vector<int> next;
      for (const int v : round) {
        level_[index(v)] = level;
        left_.erase(v);
      }
      for (const int v : round)
        for (const int other : neighbours_[index(v)])
          if (const auto entry = left_.find(other); entry != left_.end() && entry->second-- == 2)
            next.push_back(other);
      round = std::move(next);
    }
    left_.clear();
  }

  // Distance to the nearest host; within a named tier the commonest, so that a host at a spine
  // changes nothing.
  void measure(const std::vector<int>& part) {
    std::deque<int> queue;
    for (const int v : part) {
      level_[index(v)] = -1;
      if (fabric_.vertices[index(v)].kind == VertexKind::switch_) continue;
      level_[index(v)] = 0;
      queue.push_back(v);
    }
    while (!queue.empty()) {
      const int v = queue.front();
      queue.pop_front();
      for (const int other : neighbours_[index(v)]) {
        if (level_[index(other)] >= 0) continue;
        level_[index(other)] = level_[index(v)] + 1;
        queue.push_back(other);
      }
    }
    // no host in this part
    for (const int v : part) level_[index(v)] = std::max(level_[index(v)], 0);
    std::map<std::string_view, std::map<int, int>> seen;  // tier -> level -> switches
    for (const int v : part)
      if (!fabric_.vertices[index(v)].tier.empty())
        seen[fabric_.vertices[index(v)].tier][level_[index(v)]]++;
    for (const int v : part) {
      if (fabric_.vertices[index(v)].tier.empty()) continue;
      int most = 0;
      for (const auto& [level, switches] : seen[fabric_.vertices[index(v)].tier]) {
        if (switches < most) continue;
        most = switches;
        level_[index(v)] = level;
      }
    }
  }

  const Fabric& fabric_;
  const Neighbours& neighbours_;
  std::vector<int> level_;
  std::map<int, size_t> left_;
};

// Of hosts: what their NICs speak is better founded than what a switch says of its own ports.
std::vector<Wire> wires_of(const Fabric& fabric, const std::vector<int>& owner,
                           const std::vector<HostGraph::Edge>& edges) {
  std::vector<Wire> wires(fabric.vertices.size(), Wire::unknown), outside = wires;
  for (const Link& link : fabric.links)
    if (owner[index(link.from)] == owner[index(link.to)]) {
      Wire& wire = wires[index(owner[index(link.from)])];
      wire = slower(wire, link.wire);
    }
  for (const HostGraph::Edge& edge : edges)
    for (const int end : {edge.from, edge.to})
      outside[index(end)] = slower(outside[index(end)], edge.wire);
  for (size_t v = 0; v < wires.size(); v++)
    if (wires[v] == Wire::unknown) wires[v] = outside[v];
  return wires;
}

// By vertex: the host of what is inside of one, else itself.
Result<std::vector<int>> owners_of(const Fabric& fabric) {
  const auto valid = [&](int v) { return v >= 0 && index(v) < fabric.vertices.size(); };
  std::vector<int> owner(fabric.vertices.size());
  for (size_t v = 0; v < owner.size(); v++) {
    const int host = fabric.vertices[v].host;
    if (host >= 0 && (!valid(host) || fabric.vertices[index(host)].kind != VertexKind::host))
      return invalid(
          fmt::format("fabric: \"{}\" is in a host that is none", fabric.vertices[v].name));
    owner[v] = host >= 0 ? host : static_cast<int>(v);
  }
  for (const Link& link : fabric.links)
    if (!valid(link.from) || !valid(link.to)) return invalid("fabric: a link's end is no vertex");
  return owner;
}

}  // namespace

void HostIndex::add(const std::string& name, int vertex) {
  exact_.emplace(name, vertex);
  const auto [entry, added] = short_.emplace(std::string(short_name(name)), vertex);
  if (!added) entry->second = -1;
}

int HostIndex::find(const std::string& name) const {
  if (const auto entry = exact_.find(name); entry != exact_.end()) return entry->second;
  // A full name finds a short one only if that is all there is; a short name finds a full one.
  const std::string part(short_name(name));
  if (part != name) {
    const auto entry = exact_.find(part);
    return entry != exact_.end() ? entry->second : -1;
  }
  const auto entry = short_.find(part);
  return entry != short_.end() ? entry->second : -1;
}

Result<HostGraph> make_host_graph(const Fabric& fabric) {
  const Result<std::vector<int>> owners = owners_of(fabric);
  if (!owners) return owners.status();
  const std::vector<int>& owner = *owners;
  HostGraph network;
  const LineRates rates(fabric, owner);
  std::vector<int> uplinks(fabric.vertices.size(), 0);  // of a host itself, not of its NICs
  std::vector<int> downlinks(fabric.vertices.size(), 0);
  for (const Link& link : fabric.links) {
    if (owner[index(link.from)] == owner[index(link.to)]) continue;
    uplinks[index(link.from)]++;
    downlinks[index(link.to)]++;
  }
  for (const Link& link : fabric.links) {
    HostGraph::Edge edge{owner[index(link.from)],
                         owner[index(link.to)],
                         link.from,
                         link.to,
                         link.capacity,
                         link.latency_ns,
                         link.wire,
                         link.plane,
                         link.cables,
                         0,
                         static_cast<size_t>(&link - fabric.links.data())};
    if (edge.from == edge.to) continue;
    network.planes_given = network.planes_given || link.plane != 0;
    const auto kind = [&](int v) { return fabric.vertices[index(v)].kind; };
    if (kind(link.from) == VertexKind::nic)
      edge.capacity = usable(edge.capacity, rates.of(link.from, true));
    if (kind(link.to) == VertexKind::nic)
      edge.capacity = usable(edge.capacity, rates.of(link.to, false));
    if (!edge.capacity.known() && kind(link.from) == VertexKind::host &&
        uplinks[index(link.from)] == 1)
      edge.capacity = rates.of_host(link.from, true);
    if (!edge.capacity.known() && kind(link.to) == VertexKind::host &&
        downlinks[index(link.to)] == 1)
      edge.capacity = rates.of_host(link.to, false);
    network.edges.push_back(edge);
  }
  network.wire = wires_of(fabric, owner, network.edges);
  drop_dead_ends(fabric, &network.edges);

  const Neighbours neighbours = neighbours_of(fabric.vertices.size(), network.edges);
  network.level = Levels(fabric, neighbours).find();
  std::set<int> heights;
  for (HostGraph::Edge& edge : network.edges) {
    const int a = network.level[index(edge.from)];
    const int b = network.level[index(edge.to)];
    edge.height = 2 * std::max(a, b) + (a == b ? 1 : 0);
    heights.insert(edge.height);
  }
  if (heights.size() > kMaxHeights)
    return invalid(fmt::format("fabric \"{}\": {} levels of switches; at most {} can be used",
                               fabric.name, heights.size(), kMaxHeights));
  std::stable_sort(
      network.edges.begin(), network.edges.end(),
      [](const HostGraph::Edge& a, const HostGraph::Edge& b) { return a.height < b.height; });
  return network;
}

}  // namespace sennit
