// contraction.hpp: the steps between a Fabric and a TierTree, private to contract*.cpp.
//
// 1. HostGraph: hosts with all that is in them become single vertices; links between them get the
// capacity that
//    can be used, and a *height*.
// 2. Joining links by rising height (topology/fabric/contract.cpp) gives nested groups of vertices;
// those with ranks in two or
//    more parts become Nodes.
// 3. assemble() lays the Nodes out as a TierTree.
//
// Heights. Every switch has a level, hosts have 0. A link has height 2 * level of its upper end, or
// one more where both ends are on one level (racks joined by a cable). Where the network is a tree,
// levels count from the leaves to its centre: any other root would give the same cuts, because in a
// tree every link is a cut. Otherwise the level is the distance to the nearest host, the same for
// all switches of a named tier.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// Finds hosts by name: exactly, else by the part before the first dot where that is unambiguous and
// one of the two names has no more than that part ("n1" and "n1.cluster").
class HostIndex {
 public:
  void add(const std::string& name, int vertex);
  int find(const std::string& name) const;  // -1: none

 private:
  std::unordered_map<std::string, int> exact_;
  std::unordered_map<std::string, int> short_;  // -1: several
};

// Hosts and switches as single vertices, and the links between them.
struct HostGraph {
  struct Edge {  // a link between two hosts or switches, one direction
    int from = -1, to = -1;
    int from_device = -1, to_device = -1;  // the vertices themselves: a NIC of `from`, or `from`
    Capacity capacity;
    uint64_t latency_ns = 0;
    Wire wire = Wire::unknown;
    int plane = 0;
    int cables = 1;
    int height = 0;
    size_t link = 0;  // in Fabric::links
  };
  std::vector<int> level;   // by vertex; what is inside of a host has 0
  std::vector<Wire> wire;   // by vertex: what a host's NICs speak, else what its links are
  std::vector<Edge> edges;  // by rising height; dead ends are left out
  bool planes_given = false;
};
Result<HostGraph> make_host_graph(const Fabric& fabric);

// A group in the making. Ranks, then NUMA nodes, then hosts, then what the network joins.
struct Node {
  static constexpr int kRank = 0, kNuma = 1, kHost = 2;  // orders; the network's are kHost + height
  int order = kRank;
  int rank = -1;  // of a rank; else -1
  int least_rank = 0;
  std::vector<int> children;
  Capacity egress, ingress;
  int planes = 1, cables = 1;
  uint64_t latency_ns = 0;  // between two children
  uint8_t switches = 0;     // as Group has them
  Wire wire = Wire::unknown;
  uint64_t depth_ns = 0;              // from the farthest rank to the group's top
  uint64_t uplink_ns = 0;             // of the links that leave it
  uint64_t up_ns = 0, across_ns = 0;  // as Group has them
  bool up_declared = false;
  // Some link between hosts inside of it says its latency. What GPUs say of their own is no latency
  // between hosts.
  bool way_declared = false;
  std::string name, tier;
};
// Of a group and the group around it that holds nothing else: the smaller. Where only one is known,
// the smaller can be no more than that, so it is merely assumed.
Capacity narrower(const Capacity& inner, const Capacity& around);
int add_group(std::vector<Node>* nodes, int order, const std::vector<int>& children);

// What is inside of the hosts: ranks, by NUMA node where that says something.
struct Hosts {
  std::vector<std::vector<int>> ranks;  // by vertex: the ranks of that host
  std::vector<int> node;                // by vertex: the host's node, -1 where it has no ranks
  std::vector<int> strangers;           // nodes of hosts that the fabric does not know
};
Hosts make_hosts(const Fabric& fabric, const std::vector<Placement>& ranks,
                 std::vector<Node>* nodes);

// The planes of a host are the switches that its NICs lead to, or what the links say, numbered in
// the order of its NICs. A rank's home is its own NIC's plane, else that of a NIC near its NUMA
// node, else its turn.
struct HomePlanes {
  std::vector<int> planes;       // by vertex: of a host with ranks, at least 1
  std::vector<uint8_t> of_rank;  // by rank
};
HomePlanes make_home_planes(const Fabric& fabric, const HostGraph& network,
                            const std::vector<Placement>& ranks, const Hosts& hosts);

// `plane_of_rank` is left out of the tree where no group has several planes.
Result<TierTree> assemble(const std::vector<Node>& nodes, int root,
                          const std::vector<uint8_t>& plane_of_rank);

}  // namespace sennit
