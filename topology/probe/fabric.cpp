// fabric.cpp: what a probe found, as a fabric and in words. See topology/probe/probe.hpp.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/index.hpp"
#include "topology/fabric/units.hpp"
#include "topology/probe/probe.hpp"

namespace sennit::probe {

Fabric to_fabric(const Findings& findings, std::span<const std::string> names, const Fabric& known,
                 const std::string& source) {
  // Names of groups that another source knows: of the tree over the same hosts, by their sets of
  // hosts.
  std::map<std::vector<int>, std::string> name_of;
  std::vector<Placement> placements;
  for (const std::string& name : names) placements.push_back({name, -1, ""});
  if (const Result<TierTree> tree = contract(known, placements); tree.ok())
    for (const sennit::Group& g : tree->groups) {
      if (g.name.empty() || g.children == 0) continue;
      std::vector<int> hosts(tree->rank_of_position.begin() + g.first,
                             tree->rank_of_position.begin() + g.first + g.size);
      std::sort(hosts.begin(), hosts.end());
      name_of.emplace(std::move(hosts), g.name);
    }
  Fabric fabric;
  fabric.name = "probed";
  std::vector<int> level(findings.groups.size(), 0), vertex_of_host(names.size(), -1);
  const auto add_link = [&](int a, int b, uint64_t out, uint64_t in, bool measured) {
    const Provenance how = measured ? Provenance::measured : Provenance::assumed;
    fabric.links.push_back({a, b, {out, how}, 0, 1, 0, source});
    fabric.links.push_back({b, a, {in, how}, 0, 1, 0, source});
  };
  for (size_t g = findings.groups.size(); g-- > 1;) {
    int& parent = level[index(findings.groups[g].parent)];
    parent = std::max(parent, level[g] + 1);
  }
  for (size_t g = 0; g < findings.groups.size(); g++) {
    const auto found = name_of.find(findings.groups[g].hosts);
    const std::string tier = g == 0 ? "" : level[g] == 0 ? "rack" : level[g] == 1 ? "pod" : "";
    std::string name = found != name_of.end() ? found->second
                       : g == 0               ? "probed"
                                              : fmt::format("probed{}", g - 1);
    while (fabric.find(name) >= 0 || std::find(names.begin(), names.end(), name) != names.end())
      name += "'";
    fabric.vertices.push_back({VertexKind::switch_, name, tier, -1});
  }
  std::vector<int> leaf(names.size(), 0);
  for (size_t g = 0; g < findings.groups.size(); g++) {
    const Group& group = findings.groups[g];
    // inner groups come later
    for (const int h : group.hosts) leaf[index(h)] = static_cast<int>(g);
    if (g > 0)
      add_link(static_cast<int>(g), group.parent, group.egress_bytes_per_s,
               group.ingress_bytes_per_s, true);
  }
  for (size_t h = 0; h < names.size(); h++) {
    const int vertex = static_cast<int>(fabric.vertices.size());
    fabric.vertices.push_back({VertexKind::host, names[h], "", -1});
    const HostRate& rate = findings.hosts[h];
    add_link(vertex, leaf[h], rate.bytes_per_s, rate.bytes_per_s, rate.measured);
  }
  return fabric;
}

std::string Findings::summary() const {
  std::string text =
      fmt::format("probed {} hosts in {} rounds: {}", hosts.size(), rounds,
                  groups.size() < 2 ? "flat" : fmt::format("{} groups", groups.size() - 1));
  double least = 0;
  for (size_t g = 1; g < groups.size(); g++)
    if (groups[g].separation > 0 && (least == 0 || groups[g].separation < least))
      least = groups[g].separation;
  if (least > 0) text += fmt::format(", told apart by factors of {:.2f} and more", least);
  if (!slow.empty())
    text += fmt::format(", {} slow",
                        slow.size() == 1 ? "1 host" : fmt::format("{} hosts", slow.size()));
  return text;
}

std::string Findings::to_text(std::span<const std::string> names) const {
  std::string text = summary();
  for (size_t g = 1; g < groups.size(); g++) {
    std::vector<std::string> members;
    uint64_t sum = 0;
    for (const int h : groups[g].hosts) {
      members.push_back(names[index(h)]);
      sum += hosts[index(h)].bytes_per_s;
    }
    text += fmt::format("\n  {{{}}}: out {}, in {}, its hosts {}", fmt::join(members, ","),
                        format_rate(groups[g].egress_bytes_per_s),
                        format_rate(groups[g].ingress_bytes_per_s), format_rate(sum));
    if (groups[g].separation > 0)
      text += fmt::format("; told apart by a factor of {:.2f}", groups[g].separation);
  }
  for (const int h : slow)
    text += fmt::format("\n  {} is slow: {}", names[index(h)],
                        format_rate(hosts[index(h)].bytes_per_s));
  return text;
}

}  // namespace sennit::probe
