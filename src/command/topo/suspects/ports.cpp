// ports.cpp: see command/topo/suspects/ports.hpp. A cable is held against the cables of its kind
// (of switches or hosts of the same level and size under the same parent), as far as a source
// saw them one by one, and against what both its ends could do. What most of a kind are below,
// such as all of them on older cables, makes none of them suspect: it is a note. Cost: O(cables
// log cables).
#include "command/topo/suspects/ports.hpp"

#include <map>

#include <fmt/core.h>

#include "command/topo/model/wording.hpp"
#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit::topo {
namespace {

std::string rate_text(const std::string& rate) {
  return fmt::format("{}, {}", rate, readable_rate(ib_data_rate(rate)));
}

std::string cable_name(const Fabric& fabric, const Link& link, const Cable& cable) {
  return fmt::format("{} port {} - {} port {}",
                     fabric.vertices[static_cast<size_t>(link.from)].name, cable.from_port,
                     fabric.vertices[static_cast<size_t>(link.to)].name, cable.to_port);
}

}  // namespace

bool seen_by_port(const Link& link) {
  for (const Cable& cable : link.ports)
    if (ib_data_rate(cable.rate) == 0) return false;
  return !link.ports.empty();
}

PortReport slow_ports(const Fabric& fabric, const std::vector<const Link*>& alike) {
  std::map<std::string, size_t> rates, below;  // how many cables; "4xEDR", "4xEDR/4xHDR"
  size_t cables = 0;
  for (const Link* link : alike)
    for (const Cable& cable : link->ports) {
      cables++;
      rates[cable.rate]++;
      if (!cable.able.empty()) below[cable.rate + "/" + cable.able]++;
    }
  std::string usual;  // what at least half of them have, the faster of two
  for (const auto& [rate, count] : rates)
    if (2 * count >= cables && ib_data_rate(rate) > ib_data_rate(usual)) usual = rate;
  PortReport report;
  std::map<std::string, std::string> first;  // of those that are below like most: one of them
  for (const Link* link : alike)
    for (const Cable& cable : link->ports) {
      const bool slow = cables > 1 && ib_data_rate(cable.rate) < ib_data_rate(usual);
      const size_t likewise = cable.able.empty() ? 0 : below[cable.rate + "/" + cable.able];
      const bool common = cables > 1 && 2 * likewise >= cables;
      if (!slow && likewise == 0) continue;
      const std::string where = cable_name(fabric, *link, cable);
      if (!slow && common) {
        first.emplace(cable.rate + "/" + cable.able, where);
        continue;
      }
      std::string what = rate_text(cable.rate);
      if (slow) what += "; its siblings " + rate_text(usual);
      if (likewise > 0) what += "; both ends can do " + cable.able;
      report.suspects.push_back({"slow port", where, what, link->from});
    }
  for (const auto& [key, where] : first)
    report.notes.push_back(
        fmt::format("{} and {} more cables like it run at {}, though both ends can do {}", where,
                    below[key] - 1, key.substr(0, key.find('/')), key.substr(key.find('/') + 1)));
  return report;
}

std::vector<Suspect> uneven_routes(const Fabric& fabric, const std::vector<const Link*>& alike) {
  constexpr int64_t kEnough = 2;  // ways a cable on average; with fewer some are idle by chance
  std::vector<Suspect> suspects;
  const auto judge = [&](const Link& link, const Cable& cable, int64_t routes, int64_t sum,
                         int64_t cables, const char* whither) {
    if (routes < 0 || sum < kEnough * cables || (routes > 0 && routes * cables <= 2 * sum)) return;
    suspects.push_back(
        {routes == 0 ? "idle cable" : "crowded cable", cable_name(fabric, link, cable),
         fmt::format("the way {} to {} ports of hosts, its siblings to {} on average", whither,
                     routes, (sum + cables / 2) / cables),
         link.from});
  };
  int64_t up = 0, ups = 0;
  for (const Link* link : alike)
    for (const Cable& cable : link->ports) {
      if (cable.routes < 0) continue;
      up += cable.routes;
      ups++;
    }
  for (const Link* link : alike) {
    int64_t down = 0, downs = 0;  // from the same switch, over parallel cables
    for (const Cable& cable : link->ports) {
      if (cable.routes_back < 0) continue;
      down += cable.routes_back;
      downs++;
    }
    for (const Cable& cable : link->ports) {
      judge(*link, cable, cable.routes, up, ups, "up");
      judge(*link, cable, cable.routes_back, down, downs, "down");
    }
  }
  return suspects;
}

}  // namespace sennit::topo
