// ways.cpp: see topology/sources/ibnet/ways.hpp.
#include "topology/sources/ibnet/ways.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace sennit {
namespace {

// A way of more hops goes round in circles.
constexpr size_t kMostHops = 64;

IbHop over(int node, const IbPort& port) { return {node, port.number, port.peer, port.peer_port}; }

}  // namespace

std::vector<IbHop> ib_way(const IbSubnet& subnet, int from, int to) {
  const IbNode& source = subnet.nodes[index(from)];
  const IbNode& target = subnet.nodes[index(to)];
  if (from == to || source.ports.empty() || target.ports.empty()) return {};
  const auto lid = static_cast<size_t>(target.ports.front().lid);
  std::vector<IbHop> way = {over(from, source.ports.front())};
  while (way.back().to != to) {
    const int at = way.back().to;
    const IbNode& node = subnet.nodes[index(at)];
    if (node.kind != IbKind::switch_ || lid >= node.way_to.size() || way.size() == kMostHops)
      return {};
    const auto port = std::find_if(node.ports.begin(), node.ports.end(), [&](const IbPort& one) {
      return one.number == node.way_to[lid];
    });
    if (port == node.ports.end()) return {};
    way.push_back(over(at, *port));
  }
  return way;
}

}  // namespace sennit
