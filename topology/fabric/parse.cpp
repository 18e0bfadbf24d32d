// parse.cpp: reads the fabric's text form (topology/fabric/fabric.hpp). Statements may come in any
// order: vertices are declared in a first pass, what refers to them is resolved in a second.
// Memory: bounded by the limits below, whatever hostlists ask for.
#include <set>
#include <tuple>
#include <unordered_map>

#include <charconv>

#include <fmt/core.h>

#include "topology/fabric/fabric.hpp"
#include "topology/fabric/units.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

using Line = std::vector<Token>;

class FabricReader {
 public:
  explicit FabricReader(const std::string& file) : file_(file) {}

  Result<Fabric> read(std::string_view text) {
    Result<std::vector<Line>> lines = scan(text, file_, true);
    if (!lines) return lines.status();
    for (const Line& line : *lines) SENNIT_RETURN_IF_ERROR(declare(line));
    for (const Line& line : *lines) SENNIT_RETURN_IF_ERROR(connect(line));
    return std::move(fabric_);
  }

 private:
  // The i-th word of a line, or an empty one behind its end.
  static Token word(const Line& line, size_t i) {
    if (i < line.size()) return line[i];
    const Token& last = line.back();
    return {{}, last.line, last.column + last.text.size() + (last.quoted ? 2 : 0), false};
  }
  Status error(const Line& line, size_t i, std::string_view expected) const {
    return error_at(file_, word(line, i), expected);
  }
  Status expect_end(const Line& line, size_t i) const {
    return i < line.size() ? error(line, i, "the end of the line") : Status();
  }
  Result<std::vector<std::string>> names(const Line& line, size_t i, std::string_view what) const {
    if (i >= line.size()) return error(line, i, what);
    Result<std::vector<std::string>> list = expand_hostlist(file_, line[i], kMaxVertices);
    if (list && list->size() == 1 && list->front().empty()) return error(line, i, what);
    return list;
  }

  Status declare(const Line& line) {
    const std::string_view verb = line[0].text;
    if (line[0].quoted) return error(line, 0, kVerbs);
    if (verb == "fabric") {
      if (line.size() < 2) return error(line, 1, "the fabric's name");
      fabric_.name = line[1].text;
      return expect_end(line, 2);
    }
    if (verb == "conflict") {
      if (line.size() < 2) return error(line, 1, "the conflict's text");
      fabric_.conflicts.emplace_back(line[1].text);
      return expect_end(line, 2);
    }
    if (verb == "note") {
      if (line.size() < 2) return error(line, 1, "the note's text");
      fabric_.notes.emplace_back(line[1].text);
      return expect_end(line, 2);
    }
    if (verb == "switch") return declare_vertices(line, VertexKind::switch_);
    if (verb == "host") return declare_vertices(line, VertexKind::host);
    if (verb == "nic") return declare_vertices(line, VertexKind::nic);
    if (verb == "gpu") return declare_vertices(line, VertexKind::gpu);
    if (verb == "numa") return declare_vertices(line, VertexKind::numa);
    return verb == "link" || verb == "arc" ? Status() : error(line, 0, kVerbs);
  }

  Status declare_vertices(const Line& line, VertexKind kind) {
    Result<std::vector<std::string>> list = names(line, 1, "a name");
    if (!list) return list.status();
    std::string tier;
    std::string id;
    if (kind == VertexKind::switch_ && line.size() > 2) {
      if (line[2].text != "tier") return error(line, 2, "\"tier\" or the end of the line");
      if (line.size() < 4 || line[3].text.size() > kMaxNameBytes)
        return error(line, 3, "the tier's name");
      tier = line[3].text;
      SENNIT_RETURN_IF_ERROR(expect_end(line, 4));
    } else if (kind == VertexKind::host) {
      SENNIT_RETURN_IF_ERROR(expect_end(line, 2));
    } else if (kind != VertexKind::switch_) {
      if (word(line, 2).text != "host") return error(line, 2, "\"host\" and the host's name");
      if (line.size() < 4) return error(line, 3, "the host's name");
      if (line.size() > 4) {
        if (line[4].text != "id" || kind == VertexKind::numa)
          return error(
              line, 4,
              kind == VertexKind::numa ? "the end of the line" : "\"id\" or the end of the line");
        if (list->size() > 1) return error(line, 4, "no id for several devices at once");
        if (line.size() < 6 || line[5].text.empty() || line[5].text.size() > kMaxNameBytes)
          return error(line, 5, "the device's id");
        id = line[5].text;
      }
      SENNIT_RETURN_IF_ERROR(expect_end(line, 6));
    }
    if (list->size() > kMaxVertices - fabric_.vertices.size())
      return error(line, 1, fmt::format("at most {} vertices in all", kMaxVertices));
    for (std::string& name : *list) {
      if (!index_.emplace(name, static_cast<int>(fabric_.vertices.size())).second)
        return error(line, 1, fmt::format("names that are not taken yet (\"{}\" is)", name));
      fabric_.vertices.push_back({kind, std::move(name), tier, -1, id});
    }
    return {};
  }

  Status connect(const Line& line) {
    const std::string_view verb = line[0].text;
    if (verb == "nic" || verb == "gpu" || verb == "numa") return attach(line);
    if (verb == "link") return add_links(line, true);
    if (verb == "arc") return add_links(line, false);
    return {};
  }

  // The vertices that a word names, each declared.
  Result<std::vector<int>> vertices(const Line& line, size_t i) const {
    constexpr std::string_view kWhat = "the name of a vertex declared in this file";
    Result<std::vector<std::string>> list = names(line, i, kWhat);
    if (!list) return list.status();
    std::vector<int> found;
    for (const std::string& name : *list) {
      const auto entry = index_.find(name);
      if (entry == index_.end())
        return error(
            line, i,
            list->size() == 1
                ? std::string(kWhat)
                : fmt::format("names of vertices declared in this file (\"{}\" is not)", name));
      found.push_back(entry->second);
    }
    return found;
  }

  Status attach(const Line& line) {
    Result<std::vector<int>> inner = vertices(line, 1);
    if (!inner) return inner.status();
    Result<std::vector<int>> hosts = vertices(line, 3);
    if (!hosts) return hosts.status();
    if (hosts->size() != 1 && hosts->size() != inner->size())
      return error(line, 3, fmt::format("one host, or {}", inner->size()));
    for (size_t i = 0; i < inner->size(); i++) {
      const int host = (*hosts)[hosts->size() == 1 ? 0 : i];
      if (fabric_.vertices[static_cast<size_t>(host)].kind != VertexKind::host)
        return error(line, 3, "the name of a host");
      fabric_.vertices[static_cast<size_t>((*inner)[i])].host = host;
    }
    return {};
  }

  Result<int> number(const Line& line, size_t i, int least, int most) const {
    int value = 0;
    const std::string_view text = word(line, i).text;
    const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || stop != text.data() + text.size() || value < least || value > most)
      return error(line, i, fmt::format("a number from {} to {}", least, most));
    return value;
  }

  Status read_figures(const Line& line, Link* link) const {
    const std::optional<uint64_t> rate = parse_rate(word(line, 3).text);
    if (!rate) return error(line, 3, "a rate, e.g. 400Mbit/s, 50GB/s or unknown");
    link->capacity = {*rate, *rate == 0 ? Provenance::unknown : Provenance::declared, 0};
    std::set<std::string_view> given;
    for (size_t i = 4; i < line.size(); i++) {
      const std::string_view key = line[i].text;
      const bool provenance = key == "measured" || key == "declared" || key == "assumed";
      if (!given.insert(provenance ? "measured, declared or assumed" : key).second)
        return error(line, i, "every option once");
      if (key == "latency") {
        const std::optional<uint64_t> time = parse_latency(word(line, ++i).text);
        if (!time) return error(line, i, kLatencies);
        link->latency_ns = *time;
      } else if (key == "burst") {
        const std::optional<uint64_t> size = parse_size(word(line, ++i).text);
        if (!size) return error(line, i, "a size, e.g. 256KiB");
        if (*rate == 0) return error(line, i, "no burst for a rate that is unknown");
        link->capacity.burst_bytes = *size;
      } else if (key == "cables" || key == "plane") {
        Result<int> value =
            key == "cables" ? number(line, ++i, 1, 65'535) : number(line, ++i, 0, 254);
        if (!value) return value.status();
        (key == "cables" ? link->cables : link->plane) = *value;
      } else if (key == "over") {
        link->wire = wire_called(word(line, ++i).text);
        if (link->wire == Wire::unknown) return error(line, i, kWires);
      } else if (key == "source") {
        if (++i >= line.size() || line[i].text.size() > kMaxNameBytes)
          return error(line, i, "the source's name");
        link->source = line[i].text;
      } else if (key == "ports") {
        SENNIT_RETURN_IF_ERROR(read_ports(line, ++i, &link->ports));
      } else if (provenance) {
        if (*rate == 0) return error(line, i, "no provenance for a rate that is unknown");
        link->capacity.provenance = key == "measured"   ? Provenance::measured
                                    : key == "declared" ? Provenance::declared
                                                        : Provenance::assumed;
      } else {
        return error(line, i,
                     "latency, burst, cables, plane, over, source, ports, measured, declared or "
                     "assumed");
      }
    }
    if (!link->ports.empty() && link->ports.size() != static_cast<size_t>(link->cables))
      return error(
          line, line.size(),
          fmt::format("as many cables as ports ({}; cables {})", link->ports.size(), link->cables));
    return {};
  }

  // "7-12:4xHDR@64-60,8-13:1xHDR/4xHDR"
  Status read_ports(const Line& line, size_t i, std::vector<Cable>* ports) const {
    std::string_view rest = word(line, i).text;
    while (!rest.empty()) {
      std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      Cable cable;
      bool good =
          take_number(&one, '-', &cable.from_port) && take_number(&one, ':', &cable.to_port);
      good =
          good && take_rate(&one, &cable.rate) && !(cable.rate.empty() && one.substr(0, 1) == "/");
      if (good && one.substr(0, 1) == "/") {
        one.remove_prefix(1);
        good = take_rate(&one, &cable.able) && !cable.able.empty();
      }
      if (good && one.substr(0, 1) == "@") {
        one.remove_prefix(1);
        good = take_routes(&one, '-', &cable.routes) && take_routes(&one, '\0', &cable.routes_back);
      }
      if (!good || !one.empty())
        return error(line, i,
                     "ports, width and speed of each cable, e.g. 7-12:4xHDR,8-13:1xHDR/4xHDR");
      ports->push_back(std::move(cable));
    }
    return ports->empty() ? error(line, i, "ports, e.g. 7-12:4xHDR,8-13:1xHDR/4xHDR") : Status();
  }
  // Up to `end`, which is taken too; '\0': the end of the text.
  static bool take_number(std::string_view* text, char end, int* number) {
    const auto [stop, failed] = std::from_chars(text->data(), text->data() + text->size(), *number);
    const auto size = static_cast<size_t>(stop - text->data());
    if (failed != std::errc() || *number < 0 || *number > 1'000'000) return false;
    text->remove_prefix(size);
    if (end == '\0') return text->empty();
    if (text->empty() || text->front() != end) return false;
    text->remove_prefix(1);
    return true;
  }
  static bool take_routes(std::string_view* text, char end, int* number) {
    if (text->empty() || text->front() != '?') return take_number(text, end, number);
    text->remove_prefix(1);
    if (end == '\0') return text->empty();
    if (text->empty() || text->front() != end) return false;
    text->remove_prefix(1);
    return true;
  }
  // "4xHDR", or "?": unknown.
  static bool take_rate(std::string_view* text, std::string* rate) {
    constexpr size_t kMaxRateBytes = 15;
    const std::string_view taken = text->substr(0, text->find_first_of("/@"));
    text->remove_prefix(taken.size());
    if (taken == "?") return true;
    *rate = taken;
    return !taken.empty() && taken.size() <= kMaxRateBytes &&
           taken.find_first_not_of(
               "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
               std::string_view::npos;
  }

  Status add_links(const Line& line, bool both_ways) {
    Result<std::vector<int>> from = vertices(line, 1);
    if (!from) return from.status();
    Result<std::vector<int>> to = vertices(line, 2);
    if (!to) return to.status();
    const size_t count = std::max(from->size(), to->size());
    if (from->size() != to->size() && std::min(from->size(), to->size()) != 1)
      return error(line, 2, fmt::format("one name, or {} as on the other side", from->size()));
    Link link;
    SENNIT_RETURN_IF_ERROR(read_figures(line, &link));
    if (count > 1 && !link.ports.empty())
      return error(line, 1, "no ports for several links at once");
    if (count * 2 > kMaxLinks - fabric_.links.size())
      return error(line, 1, fmt::format("at most {} links in all", kMaxLinks / 2));
    for (size_t i = 0; i < count; i++) {
      link.from = (*from)[from->size() == 1 ? 0 : i];
      link.to = (*to)[to->size() == 1 ? 0 : i];
      for (int direction = 0; direction < (both_ways ? 2 : 1); direction++) {
        if (link.from == link.to) return error(line, 2, "another vertex than the link begins at");
        if (!ends_.emplace(link.from, link.to, link.plane).second)
          return error(line, 1,
                       "one link per pair of vertices and plane; cables says how many there are");
        fabric_.links.push_back(link);
        std::swap(link.from, link.to);
        for (Cable& cable : link.ports) cable = reversed(cable);
      }
    }
    return {};
  }

  static constexpr std::string_view kVerbs =
      "fabric, switch, host, nic, gpu, numa, link, arc, conflict or note";
  const std::string& file_;
  Fabric fabric_;
  std::unordered_map<std::string, int> index_;
  std::set<std::tuple<int, int, int>> ends_;
};

}  // namespace

Result<Fabric> parse_fabric(std::string_view text, const std::string& file) {
  return FabricReader(file).read(text);
}

}  // namespace sennit
