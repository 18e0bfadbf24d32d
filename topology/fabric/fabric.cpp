// fabric.cpp: the network's graph: look-up, fingerprint and text form. The reader is in
// topology/fabric/parse.cpp.
#include "topology/fabric/fabric.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "topology/fabric/units.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

// FNV-1a over bytes, then scrambled, so that sums of such hashes do not cancel.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return scrambled(hash);
}

// What cannot be written within quotes becomes '?', a quote an apostrophe.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text)
    out += c == '"' ? '\'' : static_cast<unsigned char>(c) < 32 || c == 127 ? '?' : c;
  return out + '"';
}

// As it is where that is safe, else in quotes.
std::string word(std::string_view text) {
  const auto plain = [](char c) {
    return is_letter(c) || is_digit(c) ||
           std::string_view("_-.:/+@").find(c) != std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), plain) ? std::string(text)
                                                                       : in_quotes(text);
}

const char* kind_word(VertexKind kind) {
  switch (kind) {
    case VertexKind::gpu:
      return "gpu";
    case VertexKind::numa:
      return "numa";
    case VertexKind::nic:
      return "nic";
    case VertexKind::host:
      return "host";
    case VertexKind::switch_:
      return "switch";
  }
  return "switch";
}

std::string ports_text(const std::vector<Cable>& ports) {
  const auto routes = [](int count) { return count < 0 ? "?" : std::to_string(count); };
  std::string text;
  for (const Cable& c : ports) {
    text += fmt::format("{}{}-{}:{}", text.empty() ? "" : ",", c.from_port, c.to_port,
                        c.rate.empty() ? "?" : c.rate);
    if (!c.able.empty()) text += "/" + c.able;
    if (c.routes >= 0 || c.routes_back >= 0)
      text += fmt::format("@{}-{}", routes(c.routes), routes(c.routes_back));
  }
  return text;
}

// Of two directions.
bool alike(const Link& a, const Link& b) {
  const bool same_ports =
      std::equal(a.ports.begin(), a.ports.end(), b.ports.begin(), b.ports.end(),
                 [](const Cable& x, const Cable& y) { return x == reversed(y); });
  return same_ports && a.capacity.bytes_per_s == b.capacity.bytes_per_s &&
         a.capacity.provenance == b.capacity.provenance &&
         a.capacity.burst_bytes == b.capacity.burst_bytes && a.latency_ns == b.latency_ns &&
         a.wire == b.wire && a.cables == b.cables && a.source == b.source;
}

}  // namespace

Cable reversed(Cable cable) {
  std::swap(cable.from_port, cable.to_port);
  std::swap(cable.routes, cable.routes_back);
  return cable;
}

int Fabric::find(std::string_view wanted) const {
  for (size_t i = 0; i < vertices.size(); i++)
    if (vertices[i].name == wanted) return static_cast<int>(i);
  return -1;
}

uint64_t Fabric::fingerprint() const {
  const auto vertex = [&](int i) -> const Vertex& { return vertices[static_cast<size_t>(i)]; };
  uint64_t sum = 0;  // of the parts' hashes, so the order of statements does not matter
  for (const Vertex& v : vertices)
    sum += hash_of(fmt::format("{} {} {} {}", kind_word(v.kind), v.name, v.tier,
                               v.host < 0 ? "" : vertex(v.host).name));
  for (const Link& l : links)
    sum += hash_of(
        fmt::format("{} {} {} {} {} {}{}{}", vertex(l.from).name, vertex(l.to).name,
                    l.capacity.bytes_per_s, l.latency_ns, l.cables, l.plane,
                    l.capacity.burst_bytes ? fmt::format(" {}", l.capacity.burst_bytes) : "",
                    sennit::name(l.wire)));
  return sum;
}

std::string Fabric::to_text() const {
  const auto vertex = [&](int i) { return word(vertices[static_cast<size_t>(i)].name); };
  std::string text;
  if (!name.empty()) text += fmt::format("fabric {}\n", in_quotes(name));
  for (const Vertex& v : vertices) {
    text += fmt::format("{} {}", kind_word(v.kind), word(v.name));
    if (v.host >= 0) text += fmt::format(" host {}", vertex(v.host));
    if (v.host >= 0 && !v.id.empty()) text += fmt::format(" id {}", word(v.id));
    if (!v.tier.empty()) text += fmt::format(" tier {}", word(v.tier));
    text += '\n';
  }
  // A direction and its opposite that say the same become one line, at the place of the first.
  std::map<std::tuple<int, int, int>, size_t> by_ends;
  for (size_t i = 0; i < links.size(); i++)
    by_ends.emplace(std::tuple(links[i].from, links[i].to, links[i].plane), i);
  for (size_t i = 0; i < links.size(); i++) {
    const Link& l = links[i];
    const auto opposite = by_ends.find(std::tuple(l.to, l.from, l.plane));
    const bool both = opposite != by_ends.end() && alike(links[opposite->second], l);
    if (both && opposite->second < i) continue;
    text += fmt::format("{} {} {} {}", both ? "link" : "arc", vertex(l.from), vertex(l.to),
                        format_rate(l.capacity.bytes_per_s));
    if (l.latency_ns != 0) text += fmt::format(" latency {}", format_time(l.latency_ns));
    if (l.capacity.burst_bytes != 0)
      text += fmt::format(" burst {}", format_size(l.capacity.burst_bytes));
    if (l.cables != 1) text += fmt::format(" cables {}", l.cables);
    if (l.plane != 0) text += fmt::format(" plane {}", l.plane);
    if (l.wire != Wire::unknown) text += fmt::format(" over {}", sennit::name(l.wire));
    if (l.capacity.known()) text += fmt::format(" {}", sennit::name(l.capacity.provenance));
    if (!l.source.empty()) text += fmt::format(" source {}", word(l.source));
    if (!l.ports.empty()) text += " ports " + ports_text(l.ports);
    text += '\n';
  }
  for (const std::string& conflict : conflicts)
    text += fmt::format("conflict {}\n", in_quotes(conflict));
  for (const std::string& note : notes) text += fmt::format("note {}\n", in_quotes(note));
  return text;
}

std::vector<Placement> ranks_on_all_hosts(const Fabric& fabric, int per_host) {
  std::vector<int> gpus(fabric.vertices.size(), 0);
  for (const Vertex& v : fabric.vertices)
    if (v.kind == VertexKind::gpu && v.host >= 0) gpus[static_cast<size_t>(v.host)]++;
  std::vector<Placement> ranks;
  for (size_t i = 0; i < fabric.vertices.size(); i++) {
    if (fabric.vertices[i].kind != VertexKind::host) continue;
    const int count = per_host > 0 ? per_host : std::max(1, gpus[i]);
    for (int r = 0; r < count; r++) ranks.push_back({fabric.vertices[i].name, -1, ""});
  }
  return ranks;
}

}  // namespace sennit
