// ibnet_subnets.hpp: InfiniBand subnets made to measure: the text that ibnetdiscover would write,
// which is also a netlist that ibsim takes, and the truth about it: what each group of hosts can
// send out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// By the names of the hosts within: bytes/s that leave them. Of groups with the same hosts, the
// least.
using Truth = std::map<std::set<std::string>, uint64_t>;

inline constexpr uint64_t kLane = 3'125'000'000;  // bytes/s of one lane of EDR: 25 Gbit/s
inline constexpr uint64_t kCable = 4 * kLane;

// Nodes, which add() numbers from 0, their cables, and what the test knows to be true of them.
// Ports are numbered from 1 in the order of the cables.
struct Subnet {
  struct Cable {
    int peer, peer_port, lanes;
  };
  struct Node {
    bool is_switch;
    std::string description;
    uint64_t guid, system_guid;
    std::vector<Cable> cables;  // of port i + 1
  };
  std::vector<Node> nodes;
  Truth truth;

  int add(bool is_switch, const std::string& description, uint64_t system_guid = 0) {
    const uint64_t guid =
        (is_switch ? 0x20000000 : 0x10000000) + 0x100 * static_cast<uint64_t>(nodes.size());
    nodes.push_back({is_switch, description, guid, system_guid != 0 ? system_guid : guid, {}});
    return static_cast<int>(nodes.size()) - 1;
  }
  void cable(int a, int b, int lanes = 4) {
    std::vector<Cable>& from = nodes[static_cast<size_t>(a)].cables;
    std::vector<Cable>& to = nodes[static_cast<size_t>(b)].cables;
    from.push_back({b, static_cast<int>(to.size()) + 1, lanes});
    to.push_back({a, static_cast<int>(from.size()), lanes});
  }
  // A leaf's hosts, one adapter each; the names are taken from `next` on.
  std::set<std::string> add_hosts(int leaf, int count, int* next) {
    std::set<std::string> names;
    for (int i = 0; i < count; i++) {
      const std::string host = fmt::format("node{}", (*next)++);
      cable(leaf, add(false, host + " mlx5_0"));
      names.insert(host);
      truth[{host}] = kCable;
    }
    return names;
  }
  // What leaves these hosts; a group within that has no others is the same group.
  void egress(const std::set<std::string>& hosts, uint64_t bytes_per_s) {
    const auto [entry, added] = truth.emplace(hosts, bytes_per_s);
    entry->second = std::min(entry->second, bytes_per_s);
  }

  std::string id(int node) const {
    const Node& n = nodes[static_cast<size_t>(node)];
    return fmt::format("\"{}-{:016x}\"", n.is_switch ? 'S' : 'H', n.guid);
  }
  std::string text(const std::string& speed = "EDR") const {
    std::string out = "#\n# Topology file: generated\n#\n";
    for (const bool switches : {true, false})
      for (size_t n = 0; n < nodes.size(); n++)
        if (nodes[n].is_switch == switches) out += node_text(static_cast<int>(n), speed);
    return out;
  }

 private:
  std::string node_text(int at, const std::string& speed) const {
    const Node& n = nodes[static_cast<size_t>(at)];
    const char* const kind = n.is_switch ? "switch" : "ca";
    std::string out =
        fmt::format("\nvendid=0x2c9\ndevid=0x0\nsysimgguid=0x{:x}\n{}guid=0x{:x}{}\n",
                    n.system_guid, kind, n.guid, n.is_switch ? fmt::format("({:x})", n.guid) : "");
    out += fmt::format("{}\t{} {}\t\t# \"{}\"{}\n", n.is_switch ? "Switch" : "Ca", n.cables.size(),
                       id(at), n.description,
                       n.is_switch ? fmt::format(" base port 0 lid {} lmc 0", at + 1) : "");
    for (size_t p = 0; p < n.cables.size(); p++) {
      const Cable& cable = n.cables[p];
      const Node& peer = nodes[static_cast<size_t>(cable.peer)];
      const std::string end =
          fmt::format("\"{}\" lid {} {}x{}", peer.description, cable.peer + 1, cable.lanes, speed);
      const auto guid_of = [](const Node& node, size_t port) {
        return node.is_switch ? "" : fmt::format("({:x}) ", node.guid + port);
      };
      out += fmt::format("[{}]{}\t{}[{}]{}\t\t# {}{}\n", p + 1, guid_of(n, p + 1), id(cable.peer),
                         cable.peer_port, guid_of(peer, static_cast<size_t>(cable.peer_port)),
                         n.is_switch ? "" : fmt::format("lid {} lmc 0 ", at + 1), end);
    }
    return out;
  }
};

// Leaves with `uplinks` cables, dealt over the spines. A leaf's hosts: as many as are left, at most
// `hosts`.
inline Subnet two_level(int hosts, int hosts_per_leaf, int uplinks, int spines) {
  Subnet subnet;
  for (int s = 0; s < spines; s++) subnet.add(true, fmt::format("spine{}", s));
  for (int next = 0, leaf = 0; next < hosts; leaf++) {
    const int at = subnet.add(true, fmt::format("leaf{}", leaf));
    const std::set<std::string> names =
        subnet.add_hosts(at, std::min(hosts_per_leaf, hosts - next), &next);
    for (int u = 0; u < uplinks; u++) subnet.cable(at, u % spines);
    subnet.egress(names, kCable * static_cast<uint64_t>(uplinks));
  }
  return subnet;
}

// Pods of leaves of these many hosts; every leaf has a cable to both aggregation switches of its
// pod, every one of these `ups` to each of two core switches. `swapped`: the first leaves of the
// first two pods have their uplinks in each other's pod.
inline Subnet pods(const std::vector<std::vector<int>>& hosts_of_leaves, int ups, bool swapped) {
  Subnet subnet;
  const int core = subnet.add(true, "core0");
  subnet.add(true, "core1");
  std::vector<std::set<std::string>> names(hosts_of_leaves.size());
  std::vector<int> first_agg;
  for (size_t pod = 0; pod < hosts_of_leaves.size(); pod++) {
    first_agg.push_back(subnet.add(true, fmt::format("pod{}agg0", pod)));
    subnet.add(true, fmt::format("pod{}agg1", pod));
    for (int agg = first_agg[pod]; agg < first_agg[pod] + 2; agg++)
      for (int up = 0; up < 2 * ups; up++) subnet.cable(agg, core + up % 2);
  }
  int next = 0;
  for (size_t pod = 0; pod < hosts_of_leaves.size(); pod++) {
    for (size_t leaf = 0; leaf < hosts_of_leaves[pod].size(); leaf++) {
      const int at = subnet.add(true, fmt::format("pod{}leaf{}", pod, leaf));
      const std::set<std::string> below = subnet.add_hosts(at, hosts_of_leaves[pod][leaf], &next);
      const size_t home = swapped && leaf == 0 && pod < 2 ? 1 - pod : pod;
      subnet.cable(at, first_agg[home]);
      subnet.cable(at, first_agg[home] + 1);
      subnet.egress(below, 2 * kCable);
      names[home].insert(below.begin(), below.end());
    }
  }
  for (const std::set<std::string>& below : names)
    subnet.egress(below, 4 * kCable * static_cast<uint64_t>(ups));
  return subnet;
}

// Units of hosts with `rails` adapters, one leaf for each; the leaves of a rail share a spine, to
// which each has `uplinks` cables. Each spine has a cable to each core switch; without these every
// rail is a subnet of its own, and the text is all their dumps.
inline Subnet rails(int units, int hosts, int rails, int uplinks, int cores) {
  Subnet subnet;
  for (int r = 0; r < rails; r++) subnet.add(true, fmt::format("spine{}", r));
  for (int c = 0; c < cores; c++) {
    const int core = subnet.add(true, fmt::format("core{}", c));
    for (int r = 0; r < rails; r++) subnet.cable(r, core);
  }
  for (int unit = 0; unit < units; unit++) {
    std::set<std::string> names;
    std::vector<int> leaves;
    for (int r = 0; r < rails; r++) {
      leaves.push_back(subnet.add(true, fmt::format("unit{}rail{}", unit, r)));
      for (int u = 0; u < uplinks; u++) subnet.cable(leaves.back(), r);
    }
    for (int h = 0; h < hosts; h++) {
      const std::string host = fmt::format("gpu{}", unit * hosts + h);
      for (int r = 0; r < rails; r++)
        subnet.cable(leaves[static_cast<size_t>(r)],
                     subnet.add(false, fmt::format("{} mlx5_{}", host, r)));
      names.insert(host);
      subnet.egress({host}, kCable * static_cast<uint64_t>(rails));
    }
    subnet.egress(names, kCable * static_cast<uint64_t>(rails * uplinks));
  }
  return subnet;
}

// Three leaves of four hosts, two spines, three cables from each leaf to each. One of leaf1's
// cables runs on one lane, leaf2 has lost one to spine1, and a host's runs on one lane.
inline Subnet degraded() {
  Subnet subnet;
  subnet.add(true, "spine0");
  subnet.add(true, "spine1");
  int next = 0;
  for (int leaf = 0; leaf < 3; leaf++) {
    const int at = subnet.add(true, fmt::format("leaf{}", leaf));
    std::set<std::string> names = subnet.add_hosts(at, 3, &next);
    const std::string slow = fmt::format("node{}", next++);
    subnet.cable(at, subnet.add(false, slow + " mlx5_0"), leaf == 0 ? 1 : 4);
    subnet.truth[{slow}] = leaf == 0 ? kLane : kCable;
    names.insert(slow);
    for (int u = 0; u < 6; u++)
      if (leaf != 2 || u != 5) subnet.cable(at, u % 2, leaf == 1 && u == 0 ? 1 : 4);
    subnet.egress(names, leaf == 0 ? 6 * kCable : leaf == 1 ? 5 * kCable + kLane : 5 * kCable);
  }
  return subnet;
}

// The same of a tree whose ranks are one on each host.
inline Truth truth_of(const TierTree& tree, const std::vector<Placement>& ranks) {
  Truth truth;
  for (size_t g = 1; g < tree.groups.size(); g++) {
    const Group& group = tree.groups[g];
    std::set<std::string> names;
    for (int p = group.first; p < group.first + group.size; p++)
      names.insert(ranks[static_cast<size_t>(tree.rank_of_position[static_cast<size_t>(p)])].host);
    truth[names] = group.egress.bytes_per_s;
  }
  return truth;
}

}  // namespace sennit
