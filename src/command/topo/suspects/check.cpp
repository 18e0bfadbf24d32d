// check.cpp: see command/topo/suspects/check.hpp. Nobody says what a link should be, so it is
// held against its siblings: the links of switches (or hosts) of the same level and the same
// size under the same parent. What most of them have is expected. Size is the number of ways
// down to hosts, so unequal racks are not held against each other. Cost: O(links log links).
#include "command/topo/suspects/check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/core.h>

#include "base/index.hpp"
#include "command/topo/model/fold.hpp"
#include "command/topo/model/wording.hpp"
#include "command/topo/suspects/ports.hpp"
#include "command/topo/suspects/rails.hpp"
#include "topology/fabric/contraction.hpp"

namespace sennit::topo {
namespace {

// What at least half of them say, the larger of two; unknown where there is no such figure: among
// unlike siblings none is suspect. Measured figures within 5% say the same.
Capacity usual(std::vector<Capacity> all) {
  std::sort(all.begin(), all.end(),
            [](const Capacity& a, const Capacity& b) { return a.bytes_per_s < b.bytes_per_s; });
  Capacity best;
  size_t most = 0;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin;
    const double slack = all[begin].provenance == Provenance::measured ? 1.05 : 1.0;
    while (end < all.size() && static_cast<double>(all[end].bytes_per_s) <=
                                   slack * static_cast<double>(all[begin].bytes_per_s))
      end++;
    if (end - begin >= most) {
      most = end - begin;
      best = all[begin + (end - begin) / 2];
    }
    begin = end;
  }
  return 2 * most >= all.size() ? best : Capacity();
}

bool below(const Capacity& figure, const Capacity& expected) {
  const bool measured =
      figure.provenance == Provenance::measured || expected.provenance == Provenance::measured;
  return static_cast<double>(figure.bytes_per_s) <
         static_cast<double>(expected.bytes_per_s) * (measured ? 0.9 : 1.0);
}

struct Up {  // a link towards the spine, both directions
  UpLink ends;
  Capacity out, in;  // of one cable
  int cables = 1;
  const Link* link = nullptr;
  // By ports more is said than by the average of the cables, unless that was measured.
  bool by_ports() const {
    return link != nullptr && seen_by_port(*link) && out.provenance != Provenance::measured;
  }
};

class Check {
 public:
  Check(Model* model, const HostGraph& network, const std::vector<int>& group_of_vertex)
      : model_(*model), network_(network), group_of_(group_of_vertex) {}

  void run() {
    find_links();
    find_classes();
    for (const auto& [key, members] : classes_) compare(members);
    compare_nics();
    std::vector<UpLink> ends;
    for (const Up& up : links_) ends.push_back(up.ends);
    for (Suspect& suspect : wrong_rails(model_.fabric, ends, class_of_)) report(std::move(suspect));
    find_islands();
    for (const std::string& text : model_.fabric.conflicts) {
      const size_t colon = text.find(": ");
      const std::string where = text.substr(0, colon);  // "h3", or "h3 -> rack0"
      report({"conflict", where, colon == text.npos ? text : text.substr(colon + 2),
              model_.fabric.find(where.substr(0, where.find(" -> ")))});
    }
  }

 private:
  const std::string& name_of(int v) const { return model_.fabric.vertices[index(v)].name; }
  void report(Suspect suspect) { model_.suspects.push_back(std::move(suspect)); }

  // Each pair of directions once, from the lower end up.
  void find_links() {
    std::map<std::tuple<int, int, int>, const Link*> cables;
    for (const Link& link : model_.fabric.links) cables[{link.from, link.to, link.plane}] = &link;
    std::map<std::tuple<int, int, int>, Capacity> back;
    for (const HostGraph::Edge& e : network_.edges)
      back[{e.from_device, e.to_device, e.plane}] = e.capacity;
    for (const HostGraph::Edge& e : network_.edges) {
      if (network_.level[index(e.from)] >= network_.level[index(e.to)]) continue;
      Up up;
      up.ends = {e.from, e.to, e.from_device, e.plane};
      const auto cable = cables.find({e.from_device, e.to_device, e.plane});
      if (cable != cables.end()) up.link = cable->second;
      if (up.link != nullptr) up.cables = std::max(1, up.link->cables);
      const auto other = back.find({e.to_device, e.from_device, e.plane});
      up.out = e.capacity;
      if (other != back.end()) up.in = other->second;
      if (up.out.known() && up.in.known() &&
          !(below(up.out, up.in) == false && below(up.in, up.out) == false))
        report({"one way", fmt::format("{} - {}", name_of(e.from_device), name_of(e.to)),
                fmt::format("{} up, {} down", readable_rate(up.out.bytes_per_s),
                            readable_rate(up.in.bytes_per_s)),
                e.from_device});
      up.out.bytes_per_s /= static_cast<uint64_t>(up.cables);
      model_.links_compared += up.out.known();
      model_.links_unknown += !up.out.known();
      links_of_[e.from].push_back(links_.size());
      links_.push_back(up);
    }
  }

  void find_classes() {
    // Ways down, counted from the hosts upwards.
    std::vector<double> ways(network_.level.size(), 0);
    std::vector<size_t> order(links_.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return network_.level[index(links_[a].ends.lower)] <
             network_.level[index(links_[b].ends.lower)];
    });
    const std::vector<Vertex>& vertices = model_.fabric.vertices;
    for (size_t v = 0; v < ways.size(); v++) ways[v] = vertices[v].kind == VertexKind::host;
    for (const size_t l : order)
      ways[index(links_[l].ends.upper)] += ways[index(links_[l].ends.lower)];
    std::map<std::tuple<int, int, int, double>, int> numbers;
    class_of_.assign(ways.size(), -1);
    for (const auto& [v, links] : links_of_) {
      const int group = group_of_[index(v)];
      const int parent = group < 0 ? -2 : outer(group);
      const std::tuple key(static_cast<int>(vertices[index(v)].kind), network_.level[index(v)],
                           parent, ways[index(v)]);
      class_of_[index(v)] = numbers.emplace(key, static_cast<int>(numbers.size())).first->second;
      classes_[class_of_[index(v)]].push_back(v);
    }
  }

  int outer(int group) const { return model_.tree.groups[index(group)].parent; }

  void compare(const std::vector<int>& members) {
    compare_ports(members);
    if (members.size() < 2) return;
    std::vector<Capacity> rates;
    std::map<int, int> counts, reached;  // cables; upper end -> members that have it
    for (const int v : members) {
      int cables = 0;
      std::set<int> uppers;
      for (const size_t l : links_of_.at(v)) {
        cables += links_[l].cables;
        if (links_[l].out.known() && !links_[l].by_ports()) rates.push_back(links_[l].out);
        uppers.insert(links_[l].ends.upper);
      }
      counts[cables]++;
      for (const int upper : uppers) reached[upper]++;
    }
    int expected = 0;
    for (const auto& [cables, count] : counts)
      if (2 * static_cast<size_t>(count) >= members.size()) expected = cables;
    const Capacity rate = usual(rates);
    for (const int v : members) {
      compare_count(v, expected, reached, members.size());
      for (const size_t l : links_of_.at(v))
        if (links_[l].out.known() && !links_[l].by_ports() && below(links_[l].out, rate))
          report_slow(links_[l], rate);
    }
  }

  void compare_ports(const std::vector<int>& members) {
    std::vector<const Link*> alike;
    for (const int v : members)
      for (const size_t l : links_of_.at(v))
        if (links_[l].link != nullptr && seen_by_port(*links_[l].link))
          alike.push_back(links_[l].link);
    PortReport found = slow_ports(model_.fabric, alike);
    for (Suspect& suspect : found.suspects) report(std::move(suspect));
    for (Suspect& suspect : uneven_routes(model_.fabric, alike)) report(std::move(suspect));
    for (std::string& note : found.notes) model_.notes.push_back(std::move(note));
  }

  void compare_count(int v, int expected, const std::map<int, int>& reached, size_t members) {
    int cables = 0;
    std::set<int> uppers;
    for (const size_t l : links_of_.at(v)) {
      cables += links_[l].cables;
      uppers.insert(links_[l].ends.upper);
    }
    if (cables >= expected) return;
    std::vector<std::string> missed;
    for (const auto& [upper, count] : reached)
      if (2 * static_cast<size_t>(count) > members && uppers.count(upper) == 0)
        missed.push_back(name_of(upper));
    std::string what =
        fmt::format("{}, its siblings have {}",
                    cables == 1 ? "1 uplink" : fmt::format("{} uplinks", cables), expected);
    if (!missed.empty()) what += fmt::format("; none to {}", fold_names(missed));
    report({"missing uplink", name_of(v), what, v});
  }

  void report_slow(const Up& up, const Capacity& rate) {
    report({"slow link", fmt::format("{} - {}", name_of(up.ends.device), name_of(up.ends.upper)),
            fmt::format("{}{}, its siblings {}", readable_rate(up.out.bytes_per_s),
                        up.cables > 1 ? " a cable" : "", readable_rate(rate.bytes_per_s)),
            up.ends.device});
  }

  // NICs whose line rate is below that of the same NIC of sibling hosts, or that have none: ports
  // that are down.
  void compare_nics() {
    struct Nic {
      int vertex;
      Capacity rate;
    };
    // class of the host, name within it
    std::map<std::pair<int, std::string>, std::vector<Nic>> alike;
    const std::vector<Vertex>& vertices = model_.fabric.vertices;
    for (const Link& link : model_.fabric.links) {
      const Vertex& nic = vertices[index(link.to)];
      if (nic.kind != VertexKind::nic || nic.host < 0) continue;
      if (vertices[index(link.from)].kind == VertexKind::switch_) continue;
      const std::string& host = name_of(nic.host);
      const std::string device =
          nic.name.rfind(host + "/", 0) == 0 ? nic.name.substr(host.size()) : nic.name;
      alike[{class_of_[index(nic.host)], device}].push_back({link.to, link.capacity});
    }
    std::set<int> told;  // a cable that is as slow has been reported
    for (const Suspect& suspect : model_.suspects) told.insert(suspect.vertex);
    for (const auto& [key, nics] : alike) {
      std::vector<Capacity> rates;
      for (const Nic& nic : nics) rates.push_back(nic.rate);
      const Capacity rate = usual(rates);
      for (const Nic& nic : nics)
        if (below(nic.rate, rate) && told.count(nic.vertex) == 0)
          report({"slow port", name_of(nic.vertex),
                  fmt::format("{}, its siblings {}",
                              nic.rate.known() ? readable_rate(nic.rate.bytes_per_s)
                                               : "no rate: is it down?",
                              readable_rate(rate.bytes_per_s)),
                  nic.vertex});
    }
  }

  // Hosts that no link joins with the largest part.
  void find_islands() {
    const std::vector<Vertex>& vertices = model_.fabric.vertices;
    if (!model_.above_known) return;
    std::vector<int> part(vertices.size(), -1);
    std::vector<std::vector<int>> near(vertices.size());
    for (const HostGraph::Edge& e : network_.edges) {
      near[index(e.from)].push_back(e.to);
      near[index(e.to)].push_back(e.from);
    }
    std::vector<std::vector<int>> hosts;
    for (size_t v = 0; v < vertices.size(); v++) {
      if (vertices[v].kind != VertexKind::host || part[v] >= 0) continue;
      const auto number = static_cast<int>(hosts.size());
      hosts.emplace_back();
      std::vector<int> queue = {static_cast<int>(v)};
      part[v] = number;
      for (size_t i = 0; i < queue.size(); i++) {
        if (vertices[index(queue[i])].kind == VertexKind::host) hosts.back().push_back(queue[i]);
        for (const int other : near[index(queue[i])]) {
          if (part[index(other)] >= 0) continue;
          part[index(other)] = number;
          queue.push_back(other);
        }
      }
    }
    const auto largest =
        std::max_element(hosts.begin(), hosts.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    for (auto part_hosts = hosts.begin(); part_hosts != hosts.end(); ++part_hosts) {
      if (part_hosts == largest) continue;
      std::vector<std::string> names;
      for (const int v : *part_hosts) names.push_back(name_of(v));
      report({"not connected", fold_names(names),
              fmt::format("no link joins {} with the other {}", names.size() == 1 ? "it" : "them",
                          largest->size()),
              part_hosts->front()});
    }
  }

  Model& model_;
  const HostGraph& network_;
  const std::vector<int>& group_of_;
  std::vector<Up> links_;
  std::map<int, std::vector<size_t>> links_of_;  // by lower end
  std::vector<int> class_of_;                    // by vertex; -1: no link up
  std::map<int, std::vector<int>> classes_;
};

}  // namespace

Status find_suspects(Model* model, const std::vector<int>& group_of_vertex) {
  const Result<HostGraph> network = make_host_graph(model->fabric);
  if (!network) return network.status();
  Check(model, *network, group_of_vertex).run();
  return {};
}

std::string check_text(const Reading& reading, const Model& model) {
  const std::string compared =
      model.links_unknown == 0
          ? fmt::format("{} links compared", model.links_compared)
          : fmt::format("{} links compared, {} of unknown capacity counted only",
                        model.links_compared, model.links_unknown);
  std::string notes;
  for (const SourceReport& source : reading.sources) {
    if (!source.error.empty())
      notes += fmt::format("source {} failed: {}\n", source.name, source.error);
    if (!source.note.empty())
      notes += fmt::format("source {} left out: {}\n", source.name, source.note);
  }
  for (const std::vector<std::string>* all : {&model.notes, &model.fabric.notes})
    for (const std::string& note : *all) notes += fmt::format("note: {}\n", note);
  if (model.suspects.empty()) return fmt::format("nothing suspect: {}\n{}", compared, notes);
  size_t widest = 0;
  for (const Suspect& suspect : model.suspects) widest = std::max(widest, suspect.where.size());
  widest = std::min(widest, size_t{40});
  std::string text = fmt::format("{} suspect{}; {}\n", model.suspects.size(),
                                 model.suspects.size() == 1 ? "" : "s", compared);
  for (const Suspect& suspect : model.suspects)
    text += fmt::format("{:<16}{:<{}}  {}\n", suspect.kind, suspect.where, widest, suspect.what);
  return text + notes;
}

}  // namespace sennit::topo
