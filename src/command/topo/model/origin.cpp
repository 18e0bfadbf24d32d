// origin.cpp: see command/topo/model/origin.hpp. The contraction keeps figures and forgets
// links, so its joining is done once more: at each height the sets of hosts that are groups of
// the tree are met again, and the links that leave them then are theirs. A set of hosts is known
// by its least host and their number, because the sets that hold a given host lie within each
// other. Cost: O(heights * links).
#include "command/topo/model/origin.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit::topo {
namespace {

using HostsKey = std::pair<int, int>;  // least host's vertex, hosts

// The outermost group of every set of hosts.
std::map<HostsKey, int> groups_by_hosts(const TierTree& tree,
                                        const std::vector<int>& host_of_position) {
  std::map<HostsKey, int> groups;
  for (size_t g = 0; g < tree.groups.size(); g++) {
    const Group& group = tree.groups[g];
    HostsKey key{host_of_position[index(group.first)], 0};
    int before = -1;  // ranks of a host are neighbours
    for (int p = group.first; p < group.first + group.size; p++) {
      const int host = host_of_position[index(p)];
      key.first = std::min(key.first, host);
      key.second += host != before;
      before = host;
    }
    groups.emplace(key, static_cast<int>(g));
    // Within one host nothing more is to be found; breadth first, this only skips work in deep
    // trees.
  }
  return groups;
}

struct Stage {  // what leaves a set at one height
  uint64_t bytes_per_s = 0;
  bool known = true;
  int cables = 0;
  std::set<std::string> sources;
};

class Joining {
 public:
  Joining(const Fabric& fabric, const TierTree& tree, const HostGraph& network,
          std::map<HostsKey, int> groups)
      : fabric_(fabric),
        tree_(tree),
        network_(network),
        groups_(std::move(groups)),
        least_(fabric.vertices.size()) {
    parent_.resize(fabric.vertices.size());
    std::iota(parent_.begin(), parent_.end(), 0);
    hosts_.assign(parent_.size(), 0);
    members_.resize(parent_.size());
    for (size_t v = 0; v < parent_.size(); v++) {
      least_[v] = static_cast<int>(v);
      hosts_[v] = fabric.vertices[v].kind == VertexKind::host;
      members_[v] = {static_cast<int>(v)};
    }
    for (size_t i = 0; i < fabric.links.size(); i++)
      links_.emplace(key_of(fabric.links[i].from, fabric.links[i].to, fabric.links[i].plane), i);
    for (const Link& link : fabric.links) note_line_rate(link);
    result_.of_group.resize(tree.groups.size());
    result_.group_of_vertex.assign(parent_.size(), -1);
    settled_.assign(tree.groups.size(), false);
  }

  Origins run() {
    look();
    for (size_t i = 0; i < network_.edges.size();) {
      const int height = network_.edges[i].height;
      for (; i < network_.edges.size() && network_.edges[i].height == height; i++)
        join(network_.edges[i].from, network_.edges[i].to);
      look();
    }
    return std::move(result_);
  }

 private:
  static uint64_t key_of(int from, int to, int plane) {
    return (static_cast<uint64_t>(from) << 36) ^ (static_cast<uint64_t>(to) << 12) ^
           static_cast<uint64_t>(plane & 0xfff);
  }
  int find(int v) {
    while (parent_[index(v)] != v) v = parent_[index(v)] = parent_[index(parent_[index(v)])];
    return v;
  }
  void join(int a, int b) {
    a = find(a);
    b = find(b);
    if (a == b) return;
    if (members_[index(a)].size() > members_[index(b)].size()) std::swap(a, b);
    parent_[index(a)] = b;
    const bool only_a = hosts_[index(b)] == 0, only_b = hosts_[index(a)] == 0;
    least_[index(b)] = only_a   ? least_[index(a)]
                       : only_b ? least_[index(b)]
                                : std::min(least_[index(a)], least_[index(b)]);
    hosts_[index(b)] += hosts_[index(a)];
    members_[index(b)].insert(members_[index(b)].end(), members_[index(a)].begin(),
                              members_[index(a)].end());
    members_[index(a)].clear();
  }

  // Who gives the line rates of a NIC or of a host's NICs: a cable of unknown rate has theirs.
  void note_line_rate(const Link& link) {
    for (const int end : {link.from, link.to}) {
      const Vertex& v = fabric_.vertices[index(end)];
      const Vertex& other = fabric_.vertices[index(end == link.from ? link.to : link.from)];
      const int host = v.host;
      const bool inside = v.kind == VertexKind::nic && other.kind != VertexKind::switch_;
      if (!inside || host < 0 || !link.capacity.known() || link.source.empty()) continue;
      line_rate_of_[end].insert(link.source);
      line_rate_of_[host].insert(link.source);
    }
  }

  void add(Stage* stage, const HostGraph::Edge& edge) {
    const auto found = links_.find(key_of(edge.from_device, edge.to_device, edge.plane));
    stage->known = stage->known && edge.capacity.known();
    stage->bytes_per_s += edge.capacity.bytes_per_s;
    if (found == links_.end()) return;
    const Link& link = fabric_.links[found->second];
    stage->cables += link.cables;
    if (link.capacity.bytes_per_s == edge.capacity.bytes_per_s) {
      if (!link.source.empty()) stage->sources.insert(link.source);
      return;
    }
    const auto rates = line_rate_of_.find(edge.from_device);
    if (rates != line_rate_of_.end())
      stage->sources.insert(rates->second.begin(), rates->second.end());
  }

  // The sets as they are now: those that are groups get their switches and the links that leave
  // them.
  void look() {
    std::unordered_map<int, int> group_of_set;
    for (const HostGraph::Edge& edge : network_.edges)
      for (const int end : {edge.from, edge.to}) {
        const int set = find(end);
        if (hosts_[index(set)] == 0 || group_of_set.count(set) != 0) continue;
        const auto group = groups_.find({least_[index(set)], hosts_[index(set)]});
        if (group == groups_.end()) continue;
        group_of_set[set] = group->second;
        for (const int v : members_[index(set)])
          if (result_.group_of_vertex[index(v)] < 0)
            result_.group_of_vertex[index(v)] = group->second;
      }
    std::unordered_map<int, Stage> stages;  // by group
    for (const HostGraph::Edge& edge : network_.edges) {
      const int from = find(edge.from);
      if (from == find(edge.to)) continue;
      if (const auto group = group_of_set.find(from); group != group_of_set.end())
        add(&stages[group->second], edge);
    }
    for (const auto& [group, stage] : stages) settle(group, stage);
  }

  // A group that is alone in several sets has the narrowest figure of these: whose it is, is its
  // origin.
  void settle(int group, const Stage& stage) {
    const Capacity& egress = tree_.groups[index(group)].egress;
    const bool matches = stage.known && stage.bytes_per_s == egress.bytes_per_s;
    Origin& origin = result_.of_group[index(group)];
    if (settled_[index(group)] || (!matches && !origin.sources.empty())) return;
    settled_[index(group)] = matches;
    origin.cables = stage.cables;
    origin.sources.clear();
    for (const std::string& source : stage.sources)
      origin.sources += (origin.sources.empty() ? "" : " + ") + source;
  }

  const Fabric& fabric_;
  const TierTree& tree_;
  const HostGraph& network_;
  std::map<HostsKey, int> groups_;
  std::vector<int> parent_, least_, hosts_;
  std::vector<std::vector<int>> members_;  // by representative
  std::unordered_map<uint64_t, size_t> links_;
  std::map<int, std::set<std::string>> line_rate_of_;
  std::vector<bool> settled_;
  Origins result_;
};

}  // namespace

Result<Origins> find_origins(const Fabric& fabric, const TierTree& tree,
                             const std::vector<Placement>& ranks) {
  const Result<HostGraph> network = make_host_graph(fabric);
  if (!network) return network.status();
  std::unordered_map<std::string, int> hosts;
  for (size_t v = 0; v < fabric.vertices.size(); v++)
    if (fabric.vertices[v].kind == VertexKind::host)
      hosts.emplace(fabric.vertices[v].name, static_cast<int>(v));
  std::vector<int> host_of_position;
  for (const int32_t rank : tree.rank_of_position)
    host_of_position.push_back(hosts.at(ranks[index(rank)].host));
  return Joining(fabric, tree, *network, groups_by_hosts(tree, host_of_position)).run();
}

}  // namespace sennit::topo
