// ibnet.cpp: the records of an InfiniBand subnet as a Fabric; see topology/sources/ibnet/ibnet.hpp.
// The only guesses are in names: which descriptions name a host, and which level a switch is on
// when hosts hang on several levels.
#include "topology/sources/ibnet/ibnet.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/source.hpp"
#include "topology/sources/ibnet/names.hpp"

namespace sennit {
namespace {

// Of both ends: the smaller where they differ, the known one where only one is.
const IbPort& slower_end(const IbPort& port, const IbPort* other) {
  const uint64_t here = ib_data_rate(port.rates.width, port.rates.speed);
  const uint64_t there =
      other != nullptr ? ib_data_rate(other->rates.width, other->rates.speed) : 0;
  return there != 0 && (here == 0 || there < here) ? *other : port;
}
uint64_t rate_of(const IbPort& port, const IbPort* other) {
  const IbPortRates& rates = slower_end(port, other).rates;
  return ib_data_rate(rates.width, rates.speed);
}

Cable cable_of(const IbPort& port, const IbPort* other) {
  const IbPortRates& now = slower_end(port, other).rates;
  Cable cable;
  cable.from_port = port.number;
  cable.to_port = port.peer_port;
  cable.rate = ib_rate_name(now.width, now.speed);
  cable.routes = port.routes;
  if (other != nullptr) cable.routes_back = other->routes;
  if (other == nullptr) return cable;
  cable.able = ib_able_name(port.rates, other->rates);
  if (ib_data_rate(cable.able) <= ib_data_rate(now.width, now.speed)) cable.able.clear();
  return cable;
}

bool is_below(const IbPort& port, int number) { return port.number < number; }

// The port at the cable's other end, where that node lists it.
const IbPort* other_end(const IbSubnet& subnet, size_t node, const IbPort& port) {
  const std::vector<IbPort>& ports = subnet.nodes[index(port.peer)].ports;
  const auto at = std::lower_bound(ports.begin(), ports.end(), port.peer_port, is_below);
  const bool found = at != ports.end() && at->number == port.peer_port &&
                     at->peer == static_cast<int>(node) && at->peer_port == port.number;
  return found ? &*at : nullptr;
}

class Builder {
 public:
  explicit Builder(const IbSubnet& subnet) : subnet_(subnet), vertex_(subnet.nodes.size(), -1) {}

  Fabric build() {
    fabric_.conflicts = subnet_.conflicts;
    add_switches();
    add_hosts();
    add_links();
    name_tiers();
    state_routing();
    return std::move(fabric_);
  }

 private:
  // By node: the chassis, as the first of its switches. Switches of one chassis are one switch
  // where cables inside of it join them and none lets more in than it passes on.
  std::vector<int> find_chassis() const {
    std::vector<int> chassis(subnet_.nodes.size());
    std::map<uint64_t, std::vector<int>> by_system;
    for (size_t n = 0; n < chassis.size(); n++) {
      chassis[n] = static_cast<int>(n);
      const IbNode& node = subnet_.nodes[n];
      if (node.kind == IbKind::switch_ && node.system_guid != 0)
        by_system[node.system_guid].push_back(static_cast<int>(n));
    }
    for (const auto& [guid, members] : by_system) {
      if (members.size() < 2 || blocks_inside(members)) continue;
      std::vector<int> reached = {members[0]};
      std::set<int> left(members.begin() + 1, members.end());
      for (size_t i = 0; i < reached.size(); i++)
        for (const IbPort& port : subnet_.nodes[index(reached[i])].ports)
          if (left.erase(port.peer) != 0) reached.push_back(port.peer);
      if (!left.empty()) continue;
      for (const int member : members) chassis[index(member)] = members[0];
    }
    return chassis;
  }

  bool blocks_inside(const std::vector<int>& members) const {
    const uint64_t system = subnet_.nodes[index(members[0])].system_guid;
    return std::any_of(members.begin(), members.end(), [&](int member) {
      uint64_t inside = 0;
      uint64_t outside = 0;
      for (const IbPort& port : subnet_.nodes[index(member)].ports) {
        const IbNode& peer = subnet_.nodes[index(port.peer)];
        const bool within = peer.kind == IbKind::switch_ && peer.system_guid == system;
        // A cable of unknown rate counts as a lane of the slowest.
        const uint64_t rate = rate_of(port, other_end(subnet_, index(member), port));
        (within ? inside : outside) += rate != 0 ? rate : ib_data_rate(1, IbSpeed::sdr);
      }
      return outside > inside;
    });
  }

  void add_switches() {
    const std::vector<int> chassis = find_chassis();
    std::vector<int> own;  // one node for each switch
    for (size_t n = 0; n < chassis.size(); n++)
      if (subnet_.nodes[n].kind == IbKind::switch_ && chassis[n] == static_cast<int>(n))
        own.push_back(chassis[n]);
    const std::vector<std::string> names = ib_switch_names(subnet_, own);
    std::vector<size_t> order(own.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return natural_less(names[a], names[b]); });
    for (const size_t i : order) {
      vertex_[index(own[i])] = static_cast<int>(fabric_.vertices.size());
      taken_.insert(names[i]);
      fabric_.vertices.push_back({VertexKind::switch_, names[i], "", -1});
    }
    for (size_t n = 0; n < chassis.size(); n++)
      if (vertex_[index(chassis[n])] >= 0) vertex_[n] = vertex_[index(chassis[n])];
  }

  // Hosts by name, each followed by its adapters.
  void add_hosts() {
    const std::vector<IbHost> hosts = ib_hosts(subnet_);
    for (const IbHost& host : hosts) {
      std::string name = host.name;
      while (!taken_.insert(name).second) name += "/host";
      const int at = static_cast<int>(fabric_.vertices.size());
      fabric_.vertices.push_back({VertexKind::host, name, "", -1});
      for (const auto& [device, node] : host.adapters) {
        vertex_[index(node)] = static_cast<int>(fabric_.vertices.size());
        std::string nic = fmt::format("{}/{}", name, device);
        while (!taken_.insert(nic).second) nic += "'";
        fabric_.vertices.push_back({VertexKind::nic, std::move(nic), "", at,
                                    fmt::format("0x{:016x}", subnet_.nodes[index(node)].guid)});
      }
    }
  }

  // All cables between two vertices are one link, whose capacity is unknown as soon as one cable's
  // is.
  void add_links() {
    struct Cables {
      uint64_t rate = 0;
      bool unknown = false;
      std::vector<Cable> ports;  // from the vertex that comes later
    };
    std::map<std::pair<int, int>, Cables> links;
    for (size_t n = 0; n < subnet_.nodes.size(); n++) {
      for (const IbPort& port : subnet_.nodes[n].ports) {
        const IbPort* const other = other_end(subnet_, n, port);
        // Of the two ends of a cable, the one that comes first in the records says it.
        const auto here = std::pair(static_cast<int>(n), port.number);
        if (other != nullptr && std::pair(port.peer, port.peer_port) < here) continue;
        const int a = vertex_[n];
        const int b = vertex_[index(port.peer)];
        if (a < 0 || b < 0 || a == b) continue;
        if (other != nullptr) compare(n, port, *other);
        Cables& cables = links[std::minmax(a, b)];
        const uint64_t rate = rate_of(port, other);
        cables.rate += rate;
        cables.unknown = cables.unknown || rate == 0;
        const Cable cable = cable_of(port, other);
        cables.ports.push_back(a > b ? cable : reversed(cable));
      }
    }
    for (auto& [ends, cables] : links) {
      std::sort(cables.ports.begin(), cables.ports.end(), [](const Cable& x, const Cable& y) {
        return std::pair(x.from_port, x.to_port) < std::pair(y.from_port, y.to_port);
      });
      Link link;
      link.from = ends.second;
      link.to = ends.first;
      if (!cables.unknown) link.capacity = {cables.rate, Provenance::declared};
      link.cables = static_cast<int>(cables.ports.size());
      link.source = "ibnet";
      link.wire = Wire::infiniband;
      link.ports = std::move(cables.ports);
      fabric_.links.push_back(link);
      std::swap(link.from, link.to);
      for (Cable& cable : link.ports) cable = reversed(std::move(cable));
      fabric_.links.push_back(link);
    }
  }

  // Whether the forwarding tables of all switches that others hang on were read.
  void state_routing() {
    bool read = false;
    bool missing = false;
    for (const IbNode& node : subnet_.nodes)
      for (const IbPort& port : node.ports) {
        if (node.kind != IbKind::switch_ || subnet_.nodes[index(port.peer)].kind != IbKind::switch_)
          continue;
        (port.routes >= 0 ? read : missing) = true;
      }
    fabric_.name = "InfiniBand subnet";
    if (!read && !missing) return;  // no two ways to anywhere
    fabric_.name += read && !missing ? ", routing read" : ", routing assumed";
    if (read && !missing)
      fabric_.notes.emplace_back(
          "routing read: the switches' forwarding tables say over which cables the ways to the "
          "hosts lead");
    else
      fabric_.notes.push_back(fmt::format(
          "routing assumed: all cables between two switches are taken to share their load; {}",
          read
              ? "some switches' forwarding tables are missing in the dump"
              : "a dump with what `dump_fts` writes behind what `ibnetdiscover` writes would say"));
  }

  void compare(size_t node, const IbPort& port, const IbPort& other) {
    const uint64_t here = ib_data_rate(port.rates.width, port.rates.speed);
    const uint64_t there = ib_data_rate(other.rates.width, other.rates.speed);
    if (here == 0 || there == 0 || here == there || fabric_.conflicts.size() >= kMaxConflicts)
      return;
    fabric_.conflicts.push_back(fmt::format(
        "{} port {} and {} port {}: the ends of one cable differ in rate; the smaller stands",
        fabric_.vertices[index(vertex_[node])].name, port.number,
        fabric_.vertices[index(vertex_[index(port.peer)])].name, port.peer_port));
  }

  // Switches with hosts are leaves, but for those that have few where most switches around them
  // have many: a storage or login node at a spine. What is around the leaves are spines, then core.
  void name_tiers() {
    constexpr std::array<const char*, 3> kTiers = {"leaf", "spine", "core"};
    std::vector<size_t> hosts(fabric_.vertices.size(), 0);
    std::vector<std::vector<int>> neighbours(fabric_.vertices.size());
    const auto is_switch = [&](int v) {
      return fabric_.vertices[index(v)].kind == VertexKind::switch_;
    };
    for (const Link& link : fabric_.links) {
      if (!is_switch(link.from)) continue;
      if (is_switch(link.to))
        neighbours[index(link.from)].push_back(link.to);
      else
        hosts[index(link.from)]++;
    }
    std::vector<int> queue;
    std::vector<size_t> level(fabric_.vertices.size(), 0);
    for (size_t v = 0; v < hosts.size(); v++) {
      size_t populated = 0;
      size_t theirs = 0;
      for (const int other : neighbours[v]) {
        populated += hosts[index(other)] > 0 ? 1 : 0;
        theirs += hosts[index(other)];
      }
      const bool at_spine = populated > 1 && 2 * populated > neighbours[v].size() &&
                            2 * hosts[v] * populated <= theirs;
      if (hosts[v] == 0 || at_spine) continue;
      level[v] = 1;
      queue.push_back(static_cast<int>(v));
    }
    for (size_t i = 0; i < queue.size(); i++) {
      const size_t v = index(queue[i]);
      fabric_.vertices[v].tier =
          level[v] <= kTiers.size() ? kTiers[level[v] - 1] : fmt::format("level{}", level[v]);
      for (const int other : neighbours[v]) {
        if (level[index(other)] != 0) continue;
        level[index(other)] = level[v] + 1;
        queue.push_back(other);
      }
    }
    // A cable is written from what is below.
    for (size_t i = 0; i < fabric_.links.size(); i += 2)
      if (level[index(fabric_.links[i].from)] > level[index(fabric_.links[i].to)])
        std::swap(fabric_.links[i], fabric_.links[i + 1]);
  }

  const IbSubnet& subnet_;
  Fabric fabric_;
  std::vector<int> vertex_;  // by node; -1: none
  std::set<std::string> taken_;
};

}  // namespace

void add_port(IbNode* node, const IbPort& port) {
  const auto at = std::lower_bound(node->ports.begin(), node->ports.end(), port.number, is_below);
  if (at == node->ports.end() || at->number != port.number) node->ports.insert(at, port);
}

Fabric fabric_of(const IbSubnet& subnet) { return Builder(subnet).build(); }

SENNIT_TEXT_FORM_ENTRY(ibnetdiscover, is_ibnetdiscover,
                       [](std::string_view text, const std::string& file,
                          const std::string&) -> Result<Fabric> {
                         const Result<IbSubnet> subnet = parse_ibnetdiscover(text, file);
                         if (!subnet) return subnet.status();
                         return fabric_of(*subnet);
                       })

}  // namespace sennit
