// diff.cpp: see command/topo/diff.hpp.
#include "command/topo/diff.hpp"

#include <map>
#include <tuple>

#include <fmt/core.h>

#include "base/index.hpp"
#include "command/topo/model/fold.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::topo {
namespace {

const char* kind_word(VertexKind kind) {
  const char* const words[] = {"gpu", "numa", "nic", "host", "switch"};
  return words[static_cast<size_t>(kind)];
}

std::map<std::string, std::string> vertices_of(const Fabric& fabric) {  // name -> what it is
  std::map<std::string, std::string> all;
  for (const Vertex& v : fabric.vertices) {
    std::string& what = all[v.name];
    what = std::string(kind_word(v.kind)) + (v.tier.empty() ? "" : " of tier " + v.tier);
    if (v.host < 0) continue;
    const std::string& host = fabric.vertices[index(v.host)].name;
    if (v.name.rfind(host + "/", 0) != 0) what += " in " + host;
  }
  return all;
}

using Ends = std::tuple<std::string, std::string, int>;  // the lower end, the upper, plane

std::string describe(const Link& link) {
  std::string text = format_rate(link.capacity.bytes_per_s);
  if (link.capacity.known()) text += std::string(" ") + name(link.capacity.provenance);
  if (link.capacity.burst_bytes != 0)
    text += fmt::format(", burst {}", format_size(link.capacity.burst_bytes));
  if (link.cables != 1) text += fmt::format(", {} cables", link.cables);
  if (link.latency_ns != 0) text += fmt::format(", latency {}", format_time(link.latency_ns));
  if (link.wire != Wire::unknown) text += fmt::format(", over {}", name(link.wire));
  return text;
}

std::map<Ends, std::string> links_of(const Fabric& fabric) {
  std::map<Ends, std::pair<std::string, std::string>> ways;  // up, down
  for (const Link& link : fabric.links) {
    const Vertex& from = fabric.vertices[index(link.from)];
    const Vertex& to = fabric.vertices[index(link.to)];
    const bool up = std::tie(from.kind, from.name) < std::tie(to.kind, to.name);
    auto& both =
        ways[up ? Ends(from.name, to.name, link.plane) : Ends(to.name, from.name, link.plane)];
    (up ? both.first : both.second) = describe(link);
  }
  std::map<Ends, std::string> all;
  for (const auto& [ends, both] : ways) {
    const auto& [up, down] = both;
    all[ends] = up == down     ? up
                : up.empty()   ? "down " + down
                : down.empty() ? "up " + up
                               : fmt::format("up {}, down {}", up, down);
  }
  return all;
}

// Lines with the names that they hold for, in the order of their first.
class Lines {
 public:
  void add(const std::string& before, const std::string& name, const std::string& after) {
    const auto [entry, added] = by_text_.emplace(std::pair(before, after), lines_.size());
    if (added) lines_.push_back({before, after, {}});
    lines_[entry->second].names.push_back(name);
    changes++;
  }
  std::string text() const {
    std::string all;
    for (const Line& line : lines_) all += line.before + fold_names(line.names) + line.after + "\n";
    return all;
  }
  int changes = 0;

 private:
  struct Line {
    std::string before, after;
    std::vector<std::string> names;
  };
  std::vector<Line> lines_;
  std::map<std::pair<std::string, std::string>, size_t> by_text_;
};

std::string far_end(const Ends& ends) {
  const auto& [lower, upper, plane] = ends;
  return plane == 0 ? " - " + upper : fmt::format(" - {} plane {}", upper, plane);
}

}  // namespace

Difference diff(const Fabric& a, const Fabric& b) {
  Lines removed, added, changed;
  const auto vertices_a = vertices_of(a), vertices_b = vertices_of(b);
  for (const auto& [name, what] : vertices_a) {
    const auto other = vertices_b.find(name);
    if (other == vertices_b.end())
      removed.add(fmt::format("- {} ", what), name, "");
    else if (other->second != what)
      changed.add("~ ", name, fmt::format(": {} -> {}", what, other->second));
  }
  for (const auto& [name, what] : vertices_b)
    if (vertices_a.count(name) == 0) added.add(fmt::format("+ {} ", what), name, "");
  const auto links_a = links_of(a), links_b = links_of(b);
  for (const auto& [ends, what] : links_a) {
    const auto other = links_b.find(ends);
    if (other == links_b.end())
      removed.add("- link ", std::get<0>(ends), fmt::format("{} {}", far_end(ends), what));
    else if (other->second != what)
      changed.add("~ link ", std::get<0>(ends),
                  fmt::format("{}: {} -> {}", far_end(ends), what, other->second));
  }
  for (const auto& [ends, what] : links_b)
    if (links_a.count(ends) == 0)
      added.add("+ link ", std::get<0>(ends), fmt::format("{} {}", far_end(ends), what));
  return {removed.text() + added.text() + changed.text(),
          removed.changes + added.changes + changed.changes};
}

}  // namespace sennit::topo
