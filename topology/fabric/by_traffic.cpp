// by_traffic.cpp: see topology/fabric/by_traffic.hpp.
#include "topology/fabric/by_traffic.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/text/date.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit {
namespace {

// A host's or a switch's link to what is above it.
struct Uplink {
  size_t link = 0;    // in Fabric::links
  Capacity capacity;  // that can be used
};

std::vector<Uplink> uplinks_of(const HostGraph& network, int vertex, bool egress) {
  std::vector<Uplink> uplinks;
  for (const HostGraph::Edge& edge : network.edges) {
    const int here = egress ? edge.from : edge.to, there = egress ? edge.to : edge.from;
    if (here != vertex || network.level[index(there)] < network.level[index(here)]) continue;
    uplinks.push_back({edge.link, edge.capacity});
  }
  return uplinks;
}

const Group* group_called(const TierTree& tree, const std::string& name) {
  const auto found = std::find_if(tree.groups.begin(), tree.groups.end(), [&](const Group& group) {
    return !name.empty() && group.name == name && group.parent >= 0;
  });
  return found == tree.groups.end() ? nullptr : &*found;
}

// False: they are not what the boundary is made of.
bool set_together(Fabric* fabric, const std::vector<Uplink>& uplinks, const Capacity& now,
                  const Capacity& before, const std::string& source) {
  constexpr uint64_t kNear = 1000;
  uint64_t together = 0;
  for (const Uplink& uplink : uplinks) {
    if (!uplink.capacity.known()) return false;
    together += uplink.capacity.bytes_per_s;
  }
  // Where another link on the way is narrower it may be that one.
  const auto [less, more] = std::minmax(together, before.bytes_per_s);
  if (!now.known() || more - less > more / kNear) return false;
  const double share = static_cast<double>(now.bytes_per_s) / static_cast<double>(together);
  uint64_t left = now.bytes_per_s;
  for (size_t i = 0; i < uplinks.size(); i++) {
    Link& link = fabric->links[uplinks[i].link];
    const auto part =
        static_cast<uint64_t>(share * static_cast<double>(uplinks[i].capacity.bytes_per_s));
    link.capacity = uplinks[i].capacity;
    link.capacity.bytes_per_s = std::max<uint64_t>(1, i + 1 < uplinks.size() ? part : left);
    link.capacity.provenance = Provenance::measured;
    link.source = source;
    left -= std::min(left, link.capacity.bytes_per_s);
  }
  return true;
}

}  // namespace

Result<Fabric> by_traffic(Fabric fabric, const TierTree& tree,
                          const std::vector<SlowBoundary>& slow, int64_t when_s) {
  const Result<HostGraph> network = make_host_graph(fabric);
  if (!network) return network.status();
  const TierTree seen = slowed(tree, slow);
  const std::string source = "by traffic " + utc_minute(when_s);
  for (const SlowBoundary& boundary : slow) {
    const int vertex = fabric.find(boundary.group);
    const Group *const before = group_called(tree, boundary.group), *const now = group_called(
                                                                        seen, boundary.group);
    if (vertex >= 0 && now &&
        set_together(&fabric, uplinks_of(*network, vertex, boundary.egress),
                     boundary.egress ? now->egress : now->ingress,
                     boundary.egress ? before->egress : before->ingress, source))
      continue;
    if (fabric.notes.size() < kMaxConflicts)
      fabric.notes.push_back(fmt::format(
          "{}: {} {} carries {:.0f}% of its capacity, which is not that of any links here", source,
          boundary.egress ? "out of" : "into", boundary.group, boundary.permille / 10.0));
  }
  return fabric;
}

}  // namespace sennit
