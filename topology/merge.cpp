// merge.cpp: the registered sources, and making one fabric of what they say; see
// topology/source.hpp.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "topology/fabric/contraction.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

std::string figure(const Capacity& capacity) {
  return capacity.known()
             ? fmt::format("{} {}", format_rate(capacity.bytes_per_s), name(capacity.provenance))
             : "unknown";
}

// By vertex: how far a switch is from the nearest host; hosts and what is in them: 0.
std::vector<int> levels_of(const Fabric& fabric) {
  std::vector<std::vector<int>> neighbours(fabric.vertices.size());
  for (const Link& link : fabric.links) {
    neighbours[index(link.from)].push_back(link.to);
    neighbours[index(link.to)].push_back(link.from);
  }
  std::vector<int> levels(fabric.vertices.size(), -1);
  std::vector<int> queue;
  for (size_t v = 0; v < levels.size(); v++) {
    if (fabric.vertices[v].kind == VertexKind::switch_) continue;
    levels[v] = 0;
    queue.push_back(static_cast<int>(v));
  }
  for (size_t i = 0; i < queue.size(); i++) {
    for (const int other : neighbours[index(queue[i])]) {
      if (levels[index(other)] >= 0) continue;
      levels[index(other)] = levels[index(queue[i])] + 1;
      queue.push_back(other);
    }
  }
  return levels;
}

}  // namespace

struct Merger::Impl {
  Fabric fabric;
  std::unordered_map<std::string, int> vertices;
  std::unordered_map<std::string, int> nics;  // by id
  HostIndex hosts;
  std::map<std::tuple<int, int, int>, size_t> links;  // from, to, plane
  std::vector<std::vector<int>> devices;              // by vertex: what is in the host
  std::vector<std::set<int>> above;    // by vertex: the switches that a host or switch hangs on
  std::vector<std::string> placed_by;  // by vertex: the source of the first of these
  std::set<std::string> said;          // conflicts
  std::set<std::string> noted;
  size_t unsaid = 0;

  using Before = std::unordered_map<int, std::set<int>>;  // `above` of some vertices, earlier

  const Vertex& vertex(int v) const { return fabric.vertices[index(v)]; }
  bool is_switch(int v) const { return vertex(v).kind == VertexKind::switch_; }
  int owner(int v) const { return vertex(v).host >= 0 ? vertex(v).host : v; }

  void conflict(std::string text) {
    if (said.size() >= kMaxConflicts) {
      unsaid++;
    } else if (said.insert(text).second) {
      fabric.conflicts.push_back(std::move(text));
    }
  }

  void note(const std::string& text) {
    if (noted.size() < kMaxConflicts && noted.insert(text).second) fabric.notes.push_back(text);
  }

  int insert(Vertex v) {
    const int at = static_cast<int>(fabric.vertices.size());
    vertices.emplace(v.name, at);
    if (v.kind == VertexKind::nic && !v.id.empty()) nics.emplace(v.id, at);
    if (v.kind == VertexKind::host) hosts.add(v.name, at);
    if (v.host >= 0) devices[index(v.host)].push_back(at);
    devices.emplace_back();
    fabric.vertices.push_back(std::move(v));
    above.emplace_back();
    placed_by.emplace_back();
    return at;
  }

  // The vertex of ours that stands for theirs; -1 where it cannot be.
  int map_vertex(const Vertex& theirs, const Fabric& more, const std::vector<int>& map,
                 std::string_view source) {
    std::string name = theirs.name;
    const int host = theirs.host >= 0 ? map[index(theirs.host)] : -1;
    if (theirs.host >= 0 && host < 0) return -1;
    if (host >= 0) {  // HOST/DEVICE, under the name that the host has here
      const std::string& their_host = more.vertices[index(theirs.host)].name;
      if (name.rfind(their_host + "/", 0) == 0)
        name = vertex(host).name + name.substr(their_host.size());
    }
    int at = -1;
    const auto same =
        theirs.kind == VertexKind::nic && !theirs.id.empty() ? nics.find(theirs.id) : nics.end();
    if (same != nics.end() && vertex(same->second).host == host)
      at = same->second;
    else if (const auto entry = vertices.find(name); entry != vertices.end())
      at = entry->second;
    else if (theirs.kind == VertexKind::host)
      at = hosts.find(name);
    if (at < 0) return insert({theirs.kind, name, theirs.tier, host, theirs.id});
    Vertex& ours = fabric.vertices[index(at)];
    if (ours.kind != theirs.kind || ours.host != host) {
      conflict(
          fmt::format("{}: {} takes it for something else; the first source stands", name, source));
      return -1;
    }
    if (ours.tier.empty()) ours.tier = theirs.tier;
    if (!ours.id.empty() && !theirs.id.empty() && ours.id != theirs.id)
      conflict(fmt::format("{}: has id {}, {} says {}; the former stands", name, ours.id, source,
                           theirs.id));
    if (ours.id.empty() && !theirs.id.empty()) {
      ours.id = theirs.id;
      if (ours.kind == VertexKind::nic) nics.emplace(ours.id, at);
    }
    if (!theirs.tier.empty() && theirs.tier != ours.tier)
      conflict(fmt::format("{}: of tier {}, {} says {}; the former stands", name, ours.tier, source,
                           theirs.tier));
    return at;
  }

  // Whether a host or switch may hang on this switch, or another source has placed it elsewhere.
  bool may_hang(int lower, int upper, const std::string& source, const Before& before) {
    const auto others = before.find(lower);
    if (placed_by[index(lower)] == source || others == before.end() ||
        others->second.count(upper) != 0)
      return true;
    conflict(fmt::format("{}: {} links it with {}, {} with {}; the former stands",
                         vertex(lower).name, placed_by[index(lower)],
                         vertex(*others->second.begin()).name, source, vertex(upper).name));
    return false;
  }

  // `lower` hangs on `upper`; -1 where a link says nothing of the kind.
  void add_link(Link link, int lower, int upper, const Before& before) {
    const auto [entry, added] =
        links.emplace(std::tuple(link.from, link.to, link.plane), fabric.links.size());
    if (added) {
      if (lower >= 0 && !may_hang(lower, upper, link.source, before)) {
        links.erase(entry);
        return;
      }
      if (lower >= 0 && above[index(lower)].insert(upper).second && placed_by[index(lower)].empty())
        placed_by[index(lower)] = link.source;
      fabric.links.push_back(std::move(link));
      return;
    }
    Link& ours = fabric.links[entry->second];
    if (ours.latency_ns == 0) ours.latency_ns = link.latency_ns;
    if (ours.wire == Wire::unknown) ours.wire = link.wire;
    if (ours.ports.empty() && !link.ports.empty()) {
      ours.cables = link.cables;
      ours.ports = link.ports;
    }
    if (!link.capacity.known()) return;
    const bool better = link.capacity.provenance > ours.capacity.provenance;
    if (ours.capacity.known() && ours.capacity.bytes_per_s != link.capacity.bytes_per_s)
      conflict(fmt::format("{} -> {}: {} says {}, {} says {}; the {} stands",
                           vertex(link.from).name, vertex(link.to).name, ours.source,
                           figure(ours.capacity), link.source, figure(link.capacity),
                           better ? "latter" : "former"));
    if (!better) return;
    ours.capacity = link.capacity;
    // who saw the cables knows how many there are
    if (ours.ports.empty()) ours.cables = link.cables;
    ours.source = link.source;
  }

  // Keeps the old names as aliases.
  void rename_host(int host, const std::string& name) {
    const std::string prefix = vertex(host).name + "/";
    fabric.vertices[index(host)].name = name;
    vertices.emplace(name, host);
    hosts.add(name, host);
    for (const int device : devices[index(host)]) {
      std::string& ours = fabric.vertices[index(device)].name;
      if (ours.rfind(prefix, 0) != 0) continue;
      std::string renamed = name;
      renamed.append(ours, prefix.size() - 1);
      if (vertices.count(renamed) != 0) continue;
      ours = std::move(renamed);
      vertices.emplace(ours, device);
    }
  }

  // A host whose name is new here, but whose NIC is not, is the host that has that NIC. It takes
  // the new name: whoever speaks last is the host itself, and calls itself as the job does.
  void map_hosts_by_nics(const Fabric& more, std::vector<int>* map) {
    for (const Vertex& theirs : more.vertices) {
      if (theirs.kind != VertexKind::nic || theirs.id.empty() || theirs.host < 0) continue;
      const std::string& host = more.vertices[index(theirs.host)].name;
      const auto same = nics.find(theirs.id);
      if (same == nics.end() || vertices.count(host) != 0 || hosts.find(host) >= 0) continue;
      (*map)[index(theirs.host)] = vertex(same->second).host;
      rename_host(vertex(same->second).host, host);
    }
  }

  void add(const Fabric& more, std::string_view source) {
    std::vector<int> map(more.vertices.size(), -1);
    map_hosts_by_nics(more, &map);
    for (const bool inside : {false, true})  // hosts and switches first
      for (size_t v = 0; v < map.size(); v++)
        if ((more.vertices[v].host >= 0) == inside && map[v] < 0)
          map[v] = map_vertex(more.vertices[v], more, map, source);
    for (const std::string& text : more.conflicts) conflict(text);
    for (const std::string& text : more.notes) note(text);
    // As it is before any of these links: a source's own links do not contradict each other.
    Before before;
    for (const int v : map)
      if (v >= 0 && !above[index(v)].empty()) before[v] = above[index(v)];
    const std::vector<int> levels = levels_of(more);
    for (const Link& theirs : more.links) {
      Link link = theirs;
      link.from = map[index(theirs.from)];
      link.to = map[index(theirs.to)];
      if (link.from < 0 || link.to < 0) continue;
      if (link.source.empty()) link.source = source;
      int lower = owner(link.from);
      int upper = owner(link.to);
      const int rise = levels[index(theirs.to)] - levels[index(theirs.from)];
      if (rise < 0) std::swap(lower, upper);
      if (rise == 0 || !is_switch(upper)) lower = upper = -1;
      add_link(std::move(link), lower, upper, before);
    }
  }
};

Merger::Merger(const Fabric& base) : impl_(std::make_unique<Impl>()) {
  impl_->fabric.name = base.name;
  impl_->add(base, "");
}
Merger::~Merger() = default;

void Merger::add(const Fabric& more, std::string_view source) {
  if (impl_->fabric.name.empty()) impl_->fabric.name = more.name;
  impl_->add(more, source);
}

Fabric Merger::take() {
  if (impl_->unsaid > 0)
    impl_->fabric.conflicts.push_back(fmt::format("and {} more", impl_->unsaid));
  return std::move(impl_->fabric);
}

Fabric merge(const Fabric& base, const Fabric& more, std::string_view source) {
  Merger merger(base);
  merger.add(more, source);
  return merger.take();
}

bool is_hint(const Status& status) { return status.kind() == SENNIT_UNSUPPORTED; }

Result<Fabric> read_sources(const SourceContext& context, bool per_host) {
  Merger merger;
  for (const Source& source : sources()) {
    if (source.per_host != per_host) continue;
    Result<std::optional<Fabric>> fabric = source.read(context);
    if (!fabric && source.reads_fabric_file) return fabric.status();
    if (!fabric) {
      Fabric nothing;
      (is_hint(fabric.status()) ? nothing.notes : nothing.conflicts)
          .push_back(fmt::format("{} is left out: {}", source.name, fabric.status().text()));
      merger.add(nothing, source.name);
    } else if (fabric->has_value()) {
      merger.add(**fabric, source.name);
    }
  }
  return merger.take();
}

}  // namespace sennit
