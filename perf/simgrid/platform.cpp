// See perf/simgrid/platform.hpp.
#include "perf/simgrid/platform.hpp"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/index.hpp"

namespace sennit::judge {

namespace sg = simgrid::s4u;

std::unique_ptr<sg::Engine> new_engine() {
  std::string program = "judge", quiet = "--log=root.thresh:error";
  char* arguments[] = {program.data(), quiet.data(), nullptr};
  int count = 2;
  auto engine = std::make_unique<sg::Engine>(&count, arguments);
  for (const char* setting :
       {"network/model:CM02", "network/latency-factor:1", "network/bandwidth-factor:1",
        "network/TCP-gamma:1e30", "network/crosstraffic:0", "network/weight-S:0"})
    sg::Engine::set_config(setting);
  return engine;
}

Status Platform::build(const Fabric& fabric) {
  SENNIT_RETURN_IF_ERROR(hang(fabric));
  place_ranks(fabric);
  auto* root = sg::create_star_zone("zone of " + fabric.vertices[index(order_[0])].name);
  add_zone(order_[0], root, fabric);
  root->seal();
  return check_ways(fabric);
}

// Which switch is the root makes no difference to the ways between hosts.
Status Platform::hang(const Fabric& fabric) {
  nodes_.assign(fabric.vertices.size(), {});
  std::vector<std::vector<const Link*>> out(fabric.vertices.size());
  for (const Link& link : fabric.links) {
    if (!link.capacity.known())
      return invalid(fmt::format("judge: the capacity from {} to {} is unknown",
                                 fabric.vertices[index(link.from)].name,
                                 fabric.vertices[index(link.to)].name));
    out[index(link.from)].push_back(&link);
  }
  int root = 0;
  while (root < static_cast<int>(nodes_.size()) &&
         fabric.vertices[index(root)].kind != VertexKind::switch_)
    root++;
  if (root == static_cast<int>(nodes_.size())) return invalid("judge: the fabric has no switch");
  order_ = {root};
  for (size_t i = 0; i < order_.size(); i++) {
    const int above = order_[i];
    for (const Link* down : out[index(above)]) {
      if (down->to == nodes_[index(above)].parent) continue;
      Node& node = nodes_[index(down->to)];
      if (node.parent >= 0 || down->to == root)
        return invalid(fmt::format("judge: the fabric is not a tree at {}",
                                   fabric.vertices[index(down->to)].name));
      node.parent = above;
      node.depth = nodes_[index(above)].depth + 1;
      node.down_bytes_per_s = down->capacity.bytes_per_s;
      node.down_ns = down->latency_ns;
      for (const Link* up : out[index(down->to)])
        if (up->to == above) {
          node.up_bytes_per_s = up->capacity.bytes_per_s;
          node.up_ns = up->latency_ns;
        }
      if (node.up_bytes_per_s == 0)
        return invalid(
            fmt::format("judge: {} has no way out", fabric.vertices[index(down->to)].name));
      nodes_[index(above)].children.push_back(down->to);
      order_.push_back(down->to);
    }
  }
  if (order_.size() != nodes_.size()) return invalid("judge: the fabric is not connected");
  return {};
}

void Platform::place_ranks(const Fabric& fabric) {
  rank_at_.assign(nodes_.size(), -1);
  const auto add = [&](int vertex, int machine) {
    rank_at_[index(vertex)] = static_cast<int>(places_.size());
    places_.push_back({vertex, machine, nullptr});
  };
  const int vertices = static_cast<int>(fabric.vertices.size());
  for (int machine = 0; machine < vertices; machine++) {
    if (fabric.vertices[index(machine)].kind != VertexKind::host) continue;
    bool devices = false;
    for (int v = 0; v < vertices; v++)
      if (fabric.vertices[index(v)].kind == VertexKind::gpu &&
          fabric.vertices[index(v)].host == machine) {
        add(v, machine);
        devices = true;
      }
    if (!devices) add(machine, machine);
  }
}

// SimGrid 3.32 finds the way to a zone's gateway only where the gateway lies as deep as what sends:
// beside hosts, or, where a zone holds other zones, in a zone of its own. So hosts lie beside hosts
// only.
simgrid::kernel::routing::NetPoint* Platform::add_zone(int vertex, sg::NetZone* zone,
                                                       const Fabric& fabric) {
  const std::string& zone_name = fabric.vertices[index(vertex)].name;
  const std::vector<int>& children = nodes_[index(vertex)].children;
  const bool hosts_only =
      std::all_of(children.begin(), children.end(), [&](int c) { return rank_at_[index(c)] >= 0; });
  for (const int child : children) {
    const Node& node = nodes_[index(child)];
    const std::string& name = fabric.vertices[index(child)].name;
    const sg::LinkInRoute up(
        zone->create_link("up of " + name, static_cast<double>(node.up_bytes_per_s)));
    const sg::LinkInRoute down(
        zone->create_link("down to " + name, static_cast<double>(node.down_bytes_per_s)));
    if (hosts_only) {
      auto* point = add_host(child, zone)->get_netpoint();
      zone->add_route(point, nullptr, nullptr, nullptr, {up}, false);
      zone->add_route(nullptr, point, nullptr, nullptr, {down}, false);
      continue;
    }
    sg::NetZone* below = sg::create_star_zone("zone of " + name);
    below->set_parent(zone);
    auto* gateway = rank_at_[index(child)] >= 0 ? add_host(child, below)->get_netpoint()
                                                : add_zone(child, below, fabric);
    below->seal();
    zone->add_route(below->get_netpoint(), nullptr, gateway, nullptr, {up}, false);
    zone->add_route(nullptr, below->get_netpoint(), nullptr, gateway, {down}, false);
  }
  if (hosts_only) return zone->create_router("gateway of " + zone_name);
  sg::NetZone* exit = sg::create_star_zone("exit of " + zone_name);
  exit->set_parent(zone);
  auto* gateway = exit->create_router("gateway of " + zone_name);
  exit->seal();
  zone->add_route(exit->get_netpoint(), nullptr, gateway, nullptr, {}, false);
  zone->add_route(nullptr, exit->get_netpoint(), nullptr, gateway, {}, false);
  return gateway;
}

sg::Host* Platform::add_host(int vertex, sg::NetZone* zone) {
  const int rank = rank_at_[index(vertex)];
  // an operation takes 1 ns
  sg::Host* host = zone->create_host("rank " + std::to_string(rank), 1e9);
  places_[index(rank)].host = host;
  return host;
}

// SimGrid's ways are the fabric's, link by link.
Status Platform::check_ways(const Fabric& fabric) const {
  for (int from = 0; from < ranks(); from++)
    for (const int step : {1, ranks() / 3 + 1, ranks() / 2 + 1, ranks() - 1}) {
      const int to = (from + step) % ranks();
      if (to == from) continue;
      std::vector<std::string> ours, theirs;
      walk(
          from, to, [&](int v) { ours.push_back("up of " + fabric.vertices[index(v)].name); },
          [&](int v) { ours.push_back("down to " + fabric.vertices[index(v)].name); });
      std::vector<sg::Link*> links;
      host(from)->route_to(host(to), links, nullptr);
      for (const sg::Link* link : links) theirs.push_back(link->get_name());
      std::sort(ours.begin(), ours.end());
      std::sort(theirs.begin(), theirs.end());
      if (ours != theirs)
        return {SENNIT_INTERNAL,
                fmt::format("judge: SimGrid's way from rank {} to {} is {}, the fabric's {}", from,
                            to, fmt::join(theirs, ", "), fmt::join(ours, ", "))};
    }
  return {};
}

void Platform::walk(int from, int to, const std::function<void(int)>& up,
                    const std::function<void(int)>& down) const {
  int a = places_[index(from)].vertex, b = places_[index(to)].vertex;
  while (a != b) {
    if (nodes_[index(a)].depth >= nodes_[index(b)].depth) {
      up(a);
      a = nodes_[index(a)].parent;
    } else {
      down(b);
      b = nodes_[index(b)].parent;
    }
  }
}

double Platform::latency_s(int from, int to) const {
  uint64_t ns = 0;
  walk(
      from, to, [&](int v) { ns += nodes_[index(v)].up_ns; },
      [&](int v) { ns += nodes_[index(v)].down_ns; });
  return static_cast<double>(ns) * 1e-9;
}

bool Platform::same_machine(int from, int to) const {
  return places_[index(from)].machine == places_[index(to)].machine;
}

}  // namespace sennit::judge
