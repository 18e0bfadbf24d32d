// rails.cpp: see command/topo/suspects/rails.hpp. In a rail-optimised fabric NIC i of every host
// is on leaf i of its unit, whatever the leaves are called. Each of a host's other cables votes:
// on which leaf is NIC i of the hosts that share that cable's leaf? Where most votes name
// another leaf, the cable is suspect. Where nobody can vote (two rails, both swapped) the host's
// siblings do. Cost: O(hosts * NICs^2).
#include "command/topo/suspects/rails.hpp"

#include <map>
#include <set>
#include <tuple>

#include <fmt/core.h>

#include "base/index.hpp"

namespace sennit::topo {
namespace {

struct Cable {
  std::string nic;  // "mlx5_1", or "plane 1"
  int leaf = -1;
  int device = -1;
};
using Votes = std::map<int, int>;  // leaf -> hosts

int most_voted(const Votes& votes, int* total) {
  int best = -1;
  *total = 0;
  for (const auto& [leaf, count] : votes) {
    *total += count;
    if (best < 0 || count > votes.at(best)) best = leaf;
  }
  return best;
}

}  // namespace

std::vector<Suspect> wrong_rails(const Fabric& fabric, const std::vector<UpLink>& links,
                                 const std::vector<int>& class_of_vertex) {
  std::map<int, std::vector<Cable>> hosts;
  for (const UpLink& link : links) {
    if (fabric.vertices[index(link.lower)].kind != VertexKind::host) continue;
    const std::string& host = fabric.vertices[index(link.lower)].name;
    const std::string& device = fabric.vertices[index(link.device)].name;
    const std::string nic = link.device == link.lower          ? fmt::format("plane {}", link.plane)
                            : device.rfind(host + "/", 0) == 0 ? device.substr(host.size() + 1)
                                                               : device;
    hosts[link.lower].push_back({nic, link.upper, link.device});
  }
  // a NIC, the leaf that it is on, another NIC
  using Ballot = std::tuple<std::string, int, std::string>;
  std::map<Ballot, Votes> votes;
  std::map<std::pair<int, std::string>, Votes> siblings;
  std::set<std::string> unnamed;  // several cables of one name tell nothing apart
  for (const auto& [host, cables] : hosts) {
    std::set<std::string> seen;
    for (const Cable& a : cables) {
      if (!seen.insert(a.nic).second) unnamed.insert(a.nic);
      siblings[{class_of_vertex[index(host)], a.nic}][a.leaf]++;
      for (const Cable& b : cables)
        if (a.nic != b.nic) votes[{a.nic, a.leaf, b.nic}][b.leaf]++;
    }
  }
  std::vector<Suspect> suspects;
  for (const auto& [host, cables] : hosts) {
    if (cables.size() < 2) continue;
    for (const Cable& cable : cables) {
      if (unnamed.count(cable.nic) != 0) continue;
      Votes all;
      for (const Cable& voter : cables) {
        if (voter.nic == cable.nic) continue;
        for (const auto& [leaf, count] : votes.at({voter.nic, voter.leaf, cable.nic}))
          if (const int others = count - (leaf == cable.leaf); others > 0) all[leaf] += others;
      }
      if (all.empty()) {
        all = siblings.at({class_of_vertex[index(host)], cable.nic});
        if (--all[cable.leaf] == 0) all.erase(cable.leaf);
      }
      int total = 0;
      const int leaf = most_voted(all, &total);
      if (leaf < 0 || leaf == cable.leaf || 2 * all.at(leaf) <= total || total < 2) continue;
      suspects.push_back(
          {"wrong rail", fabric.vertices[index(cable.device)].name,
           fmt::format("{}on {}, its siblings' on {}", cable.device == host ? cable.nic + " " : "",
                       fabric.vertices[index(cable.leaf)].name, fabric.vertices[index(leaf)].name),
           cable.device});
    }
  }
  return suspects;
}

}  // namespace sennit::topo
