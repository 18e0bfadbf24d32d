// contract.cpp: a Fabric and the places of ranks to a TierTree, by joining vertices over links of
// rising height; see topology/fabric/contraction.hpp. What leaves a group upwards are the links
// that no join has used yet, so their sum is its egress. Planes of a group: the parts into which
// its switches fall when its hosts are taken away, as far as they have links that leave it (rails);
// or what the links say. Cost: O(heights * (links + hosts)).
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit {
namespace {

class Sets {  // union-find
 public:
  explicit Sets(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int find(int v) {
    while (parent_[index(v)] != v) v = parent_[index(v)] = parent_[index(parent_[index(v)])];
    return v;
  }
  void join(int a, int b) { parent_[index(find(a))] = find(b); }

 private:
  std::vector<int> parent_;
};

// Sum of links: unknown as soon as one is unknown, no better founded than the least founded. Where
// it does not fit it is the largest that does.
struct Sum {
  Capacity capacity;
  bool any = false;
  bool unknown = false;
  void add(const Capacity& c) {
    unknown = unknown || !c.known();
    capacity.provenance = any ? std::min(capacity.provenance, c.provenance) : c.provenance;
    capacity.bytes_per_s = saturated(Wide{capacity.bytes_per_s} + c.bytes_per_s);
    capacity.burst_bytes = saturated(Wide{capacity.burst_bytes} + c.burst_bytes);
    any = true;
  }
  Capacity total() const { return any && !unknown ? capacity : Capacity(); }
};

// What leaves a group.
struct Border {
  Sum out, in;
  uint64_t latency_ns = 0;
  int cables = 0;  // outwards
  std::set<int> planes;
};

Capacity through(const Capacity& inner, const Sum& outer) {
  return outer.any ? narrower(inner, outer.total()) : inner;
}

class Contraction {
 public:
  Contraction(const Fabric& fabric, const HostGraph& network, std::vector<Node> nodes,
              const Hosts& hosts, const HomePlanes& home)
      : fabric_(fabric),
        network_(network),
        nodes_(std::move(nodes)),
        strangers_(hosts.strangers),
        sets_(fabric.vertices.size()),
        rails_(fabric.vertices.size()),
        held_(fabric.vertices.size()) {
    for (size_t v = 0; v < hosts.node.size(); v++)
      if (hosts.node[v] >= 0) held_[v].push_back(hosts.node[v]);
    make_borders();
    for (size_t v = 0; v < hosts.node.size(); v++)
      if (hosts.node[v] >= 0) enter_network(static_cast<int>(v), home.planes[v]);
  }

  // Returns the root's node; nodes() holds all.
  int run() {
    for (size_t i = 0; i < network_.edges.size();) i = join(i);
    return make_root();
  }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  Node& node(int i) { return nodes_[index(i)]; }
  bool is_switch(int v) const { return fabric_.vertices[index(v)].kind == VertexKind::switch_; }

  // What leaves every set that holds ranks now, by its representative.
  void make_borders() {
    borders_.clear();
    for (const HostGraph::Edge& edge : network_.edges) {
      const int from = sets_.find(edge.from);
      const int to = sets_.find(edge.to);
      if (from == to) continue;
      if (!held_[index(from)].empty()) {
        Border& border = borders_[from];
        border.out.add(edge.capacity);
        border.cables += edge.cables;
        border.latency_ns = std::max(border.latency_ns, edge.latency_ns);
        if (network_.planes_given)
          border.planes.insert(edge.plane);
        else if (is_switch(edge.from))
          border.planes.insert(rails_.find(edge.from));
      }
      if (!held_[index(to)].empty()) borders_[to].in.add(edge.capacity);
    }
  }

  // A host gets its NICs' capacity. A single rank *is* its host, and its device may be the
  // narrower.
  void enter_network(int host, int planes) {
    Node& group = node(held_[index(host)][0]);
    const Border& border = borders_[host];
    group.egress = group.egress.known() ? through(group.egress, border.out) : border.out.total();
    group.ingress = group.ingress.known() ? through(group.ingress, border.in) : border.in.total();
    group.planes = planes;
    group.wire = network_.wire[index(host)];
    set_latency(&group);
    group.uplink_ns = border.latency_ns;
  }

  // The way from a group's top to that of the group around it goes on over the links that leave it.
  void rise(Node* group, bool same_level) {
    group->up_ns += same_level ? 0 : group->uplink_ns;
    group->across_ns = same_level ? group->uplink_ns : 0;
    group->up_declared |= group->uplink_ns > 0;
  }

  // Latency between the two farthest children, and from a rank to the top.
  void set_latency(Node* group) {
    uint64_t first = 0;
    uint64_t second = 0;
    uint64_t across = 0;
    for (const int child : group->children) {
      across = std::max(across, node(child).across_ns);
      uint64_t reach = node(child).depth_ns + node(child).up_ns;
      if (reach > first) std::swap(reach, first);
      second = std::max(second, reach);
    }
    group->latency_ns = first + second + across;
    group->depth_ns = first;
  }

  // Joins all links of the height of edge i; returns the first edge of the next height.
  size_t join(size_t i) {
    const int height = network_.edges[i].height;
    std::set<int> touched;
    for (; i < network_.edges.size() && network_.edges[i].height == height; i++) {
      const HostGraph::Edge& edge = network_.edges[i];
      if (is_switch(edge.from) && is_switch(edge.to)) rails_.join(edge.from, edge.to);
      int a = sets_.find(edge.from);
      int b = sets_.find(edge.to);
      if (a == b) continue;
      if (held_[index(a)].size() > held_[index(b)].size()) std::swap(a, b);
      sets_.join(a, b);  // b stays the representative
      held_[index(b)].insert(held_[index(b)].end(), held_[index(a)].begin(), held_[index(a)].end());
      held_[index(a)].clear();
      touched.erase(a);
      touched.insert(b);
    }
    std::erase_if(touched, [&](int set) { return held_[index(set)].empty(); });
    make_borders();
    for (const int set : touched) close(set, height);
    name_groups(touched, height);
    return i;
  }

  // Turns what a set holds into one group.
  void close(int set, int height) {
    std::vector<int>& held = held_[index(set)];
    const Border& border = borders_[set];
    const bool same_level = height % 2 == 1;
    const int planes = std::clamp(static_cast<int>(border.planes.size()), 1, 255);
    if (held.size() == 1) {
      Node& only = node(held[0]);
      only.egress = through(only.egress, border.out);
      only.ingress = through(only.ingress, border.in);
      if (border.out.any) only.planes = std::min(only.planes, planes);
      only.cables = std::max(only.cables, border.cables / planes);
      rise(&only, same_level);
      only.uplink_ns = border.latency_ns;
      return;
    }
    const int group = add_group(&nodes_, Node::kHost + height, held);
    node(group).egress = border.out.total();
    node(group).ingress = border.in.total();
    node(group).planes = planes;
    node(group).cables =
        std::max(1, border.cables / planes);  // of each: planes are chosen, not hashed
    node(group).switches = static_cast<uint8_t>(std::min(height - 1, 255));
    for (const int child : held) rise(&node(child), same_level);
    set_latency(&node(group));
    node(group).way_declared = std::ranges::any_of(
        held, [&](int child) { return node(child).way_declared || node(child).up_declared; });
    if (!node(group).way_declared) node(group).latency_ns = 0;
    node(group).uplink_ns = border.latency_ns;
    held = {group};
  }

  // New groups are called after the switches at their top.
  void name_groups(const std::set<int>& touched, int height) {
    std::map<int, std::vector<int>> tops;
    for (size_t v = 0; v < network_.level.size(); v++) {
      const int set = sets_.find(static_cast<int>(v));
      if (is_switch(static_cast<int>(v)) && network_.level[v] == height / 2 &&
          touched.count(set) != 0)
        tops[set].push_back(static_cast<int>(v));
    }
    for (const auto& [set, switches] : tops) {
      Node& group = node(held_[index(set)][0]);
      if (group.order != Node::kHost + height) continue;
      const Vertex& top = fabric_.vertices[index(switches[0])];
      group.name =
          switches.size() == 1 ? top.name : fmt::format("{}+{}", top.name, switches.size() - 1);
      if (height % 2 == 0) group.tier = top.tier;
    }
  }

  // Parts that no link connects, and hosts that the fabric does not know, meet at the root.
  int make_root() {
    std::vector<int> parts;
    int order = Node::kHost;
    for (const std::vector<int>& held : held_) parts.insert(parts.end(), held.begin(), held.end());
    for (const int part : parts) order = std::max(order, node(part).order);
    int root = -1;
    if (parts.size() + strangers_.size() == 1) {
      root = parts.empty() ? strangers_[0] : parts[0];
    } else if (parts.size() == 1 && order > Node::kHost) {
      root = parts[0];
      for (const int stranger : strangers_) {
        node(root).children.push_back(stranger);
        node(root).least_rank = std::min(node(root).least_rank, node(stranger).least_rank);
      }
    } else {
      parts.insert(parts.end(), strangers_.begin(), strangers_.end());
      root = add_group(&nodes_, order + 1, parts);
    }
    node(root).egress = node(root).ingress = Capacity();
    node(root).planes = node(root).cables = 1;
    return root;
  }

  const Fabric& fabric_;
  const HostGraph& network_;
  std::vector<Node> nodes_;
  std::vector<int> strangers_;
  Sets sets_;                           // vertices joined so far
  Sets rails_;                          // switches joined so far without the help of hosts
  std::vector<std::vector<int>> held_;  // by representative: nodes in the set
  std::map<int, Border> borders_;
};

}  // namespace

Result<TierTree> contract(const Fabric& fabric, const std::vector<Placement>& ranks) {
  if (ranks.empty()) return invalid("contract: no ranks");
  Result<HostGraph> network = make_host_graph(fabric);
  if (!network) return network.status();
  std::vector<Node> nodes;
  const Hosts hosts = make_hosts(fabric, ranks, &nodes);
  const HomePlanes home = make_home_planes(fabric, *network, ranks, hosts);
  Contraction contraction(fabric, *network, std::move(nodes), hosts, home);
  const int root = contraction.run();
  return assemble(contraction.nodes(), root, home.of_rank);
}

}  // namespace sennit
