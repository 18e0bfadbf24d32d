// model.hpp: the model that every output of `sennit topo` is made of: the tier tree over all hosts,
// each host opened to its NUMA nodes, NICs and GPUs, with origins and suspects attached.
//
//   sources ──▶ Reading (Fabric) ──▶ Model (tree of Items, suspects) ──▶ text, json, picture, order
//
// Everything but reading is pure. Names, never indexes, reach the screen. Cost: O(vertices + links)
// but for the order, which is O(ranks * depth).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/fabric/fabric.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::topo {

// What an Item stands for.
enum class ItemKind : uint8_t { group, host, numa, nic, gpu };

// A group of hosts, a host, or what is inside of one. Its figures are those of its boundary.
struct Item {
  ItemKind kind = ItemKind::group;
  // tier: "rack", ...; of the kinds below group: "host", "numa", "nic", "gpu"
  std::string name, tier;
  int group = -1;   // in Model::tree; -1 inside of hosts
  int vertex = -1;  // in the fabric; -1: a group
  Capacity egress, ingress;
  std::string origin;  // who said so: "file", "file + hwloc"; empty: nobody
  int cables = 0;      // of the egress; 0: unknown
  int planes = 1;
  uint64_t latency_ns = 0;       // within it; 0: unknown
  bool latency_assumed = false;  // from the kind of its wires
  Wire wire = Wire::unknown;
  double oversubscription = 0;  // 0: unknown
  int hosts = 0;                // in it
  std::vector<int> suspects;    // in Model::suspects
  std::vector<Item> children;
};

// Something that may be wrong with the network. `kind` is one of the words that README.md explains.
struct Suspect {
  std::string kind;   // "slow port"
  std::string where;  // names
  std::string what;   // what is seen and what was expected, without the name in `where`
  int vertex = -1;    // in the fabric; -1: none
};

// What all outputs are made of; make_model() makes it.
struct Model {
  Fabric fabric;
  TierTree tree;
  Item root;
  std::vector<Suspect> suspects;
  std::vector<std::string> notes;   // that most cables of a kind are below what they could do
  bool above_known = false;         // whether anything is known beyond the hosts
  std::vector<std::string> way_up;  // of a single host: the switches above it, nearest first
  int links_compared = 0, links_unknown = 0;
};

}  // namespace sennit::topo
