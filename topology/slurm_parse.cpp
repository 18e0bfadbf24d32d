// slurm_parse.cpp: see slurm.hpp. Cost: linear in the text and the names that its hostlists stand for.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "slurm.hpp"
#include "source.hpp"
#include "text_scan.hpp"

namespace sennit {
namespace {

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

void add_link(Fabric* fabric, int a, int b) {
  Link link;
  link.from = a;
  link.to = b;
  fabric->links.push_back(link);
  std::swap(link.from, link.to);
  fabric->links.push_back(link);
}

class ConfReader {
 public:
  explicit ConfReader(const std::string& file) : file_(file) {}

  Result<Fabric> read(std::string_view text) {
    Result<std::vector<std::vector<Token>>> lines = scan(text, file_, false);
    if (!lines) return lines.status();
    for (const std::vector<Token>& line : *lines) SENNIT_RETURN_IF_ERROR(declare(line));
    for (const Entry& entry : entries_) SENNIT_RETURN_IF_ERROR(connect(entry));
    SENNIT_RETURN_IF_ERROR(check_cycles());
    SENNIT_RETURN_IF_ERROR(join_blocks());
    return std::move(fabric_);
  }

 private:
  struct Entry {  // one line
    int vertex = -1;
    bool has_switches = false;
    bool has_nodes = false;
    Token switches, nodes;
    std::vector<int> below;
  };

  Status error(const Token& token, std::string_view expected) const {
    return error_at(file_, token, expected);
  }

  Result<int> add_vertex(VertexKind kind, const std::string& name, const std::string& tier, const Token& at) {
    if (fabric_.vertices.size() >= kMaxVertices)
      return error(at, fmt::format("at most {} switches and nodes in all", kMaxVertices));
    const int vertex = static_cast<int>(fabric_.vertices.size());
    if (!index_.emplace(name, vertex).second)
      return error(at, fmt::format("a name that is not taken yet (\"{}\" is)", name));
    fabric_.vertices.push_back({kind, name, tier, -1});
    return vertex;
  }

  Status declare(const std::vector<Token>& line) {
    Entry entry;
    for (const Token& word : line) {
      const size_t equals = word.text.find('=');
      if (equals == std::string_view::npos) return error(word, "KEY=VALUE");
      const std::string key = lower(word.text.substr(0, equals));
      const Token value = {word.text.substr(equals + 1), word.line, word.column + equals + 1, false};
      if (value.text.empty()) return error(value, fmt::format("a value for {}", word.text.substr(0, equals)));
      if (key == "switchname" || key == "blockname") {
        if (entry.vertex >= 0) return error(word, "one SwitchName or BlockName on a line");
        if (value.text.size() > kMaxNameBytes)
          return error(value, fmt::format("a name of at most {} bytes", kMaxNameBytes));
        Result<int> vertex = add_vertex(VertexKind::switch_, std::string(value.text),
                                        key == "blockname" ? "block" : "", value);
        if (!vertex) return vertex.status();
        entry.vertex = *vertex;
        if (key == "blockname") blocks_.push_back(*vertex);
      } else if (key == "switches") {
        entry.has_switches = true;
        entry.switches = value;
      } else if (key == "nodes") {
        entry.has_nodes = true;
        entry.nodes = value;
      } else if (key == "blocksizes") {
        SENNIT_RETURN_IF_ERROR(read_block_sizes(value));
      } else if (key != "linkspeed" && key != "level" && key != "blockindex" && key != "blocksize") {
        return error(word, "SwitchName, Switches, Nodes, BlockName, BlockSizes or LinkSpeed");
      }
    }
    if (entry.vertex < 0) {
      const bool sizes_alone = line.size() == 1 && lower(line[0].text).rfind("blocksizes=", 0) == 0;
      return sizes_alone ? Status()
                         : error(line[0], "a line that begins with SwitchName, BlockName or BlockSizes");
    }
    if (!entry.has_switches && !entry.has_nodes) {
      const Token& last = line.back();
      return error({{}, last.line, last.column + last.text.size(), false}, "Nodes= or Switches=");
    }
    entries_.push_back(std::move(entry));
    return {};
  }

  Status read_block_sizes(const Token& value) {
    size_t at = 0;
    while (at <= value.text.size()) {
      const size_t comma = std::min(value.text.find(',', at), value.text.size());
      uint64_t size = 0;
      const char* const end = value.text.data() + comma;
      const auto [stop, failed] = std::from_chars(value.text.data() + at, end, size);
      Token here = {value.text.substr(at, comma - at), value.line, value.column + at, false};
      if (failed != std::errc() || stop != end || size == 0 || size > kMaxVertices)
        return error(here, "a number of nodes");
      if (!sizes_.empty() && (size <= sizes_.back() || size % sizes_.back() != 0))
        return error(here, "a larger multiple of the size before it");
      sizes_.push_back(size);
      at = comma + 1;
    }
    return {};
  }

  Status connect(const Entry& entry) {
    const Token& list = entry.has_switches ? entry.switches : entry.nodes;
    Result<std::vector<std::string>> names = expand_hostlist(file_, list, kMaxVertices);
    if (!names) return names.status();
    if (names->size() * 2 > kMaxLinks - fabric_.links.size())
      return error(list, fmt::format("at most {} links in all", kMaxLinks / 2));
    std::set<std::string> seen;
    for (const std::string& name : *names) {
      if (!seen.insert(name).second) return error(list, fmt::format("\"{}\" only once", name));
      const auto known = index_.find(name);
      int below = known == index_.end() ? -1 : known->second;
      const bool is_switch =
          below >= 0 && fabric_.vertices[static_cast<size_t>(below)].kind == VertexKind::switch_;
      if (entry.has_switches && !is_switch)
        return error(list,
                     fmt::format("switches with a SwitchName line in this file (\"{}\" has none)", name));
      if (!entry.has_switches && is_switch)
        return error(list, fmt::format("nodes (\"{}\" is a switch)", name));
      if (below < 0) {
        Result<int> vertex = add_vertex(VertexKind::host, name, "", list);
        if (!vertex) return vertex.status();
        below = *vertex;
      }
      if (entry.has_switches) below_[entry.vertex].push_back(below);
      if (entry.has_switches) lists_[entry.vertex] = list;
      add_link(&fabric_, below, entry.vertex);
    }
    return {};
  }

  // Depth first over "contains"; a switch met again while it is still open contains itself.
  Status check_cycles() const {
    enum : char { kNew, kOpen, kDone };
    std::vector<char> state(fabric_.vertices.size(), kNew);
    for (const auto& [start, unused] : below_) {
      std::vector<std::pair<int, size_t>> stack = {{start, 0}};
      while (!stack.empty()) {
        auto& [at, next] = stack.back();
        if (next == 0 && state[static_cast<size_t>(at)] == kDone) {
          stack.pop_back();
          continue;
        }
        state[static_cast<size_t>(at)] = kOpen;
        const auto below = below_.find(at);
        if (below == below_.end() || next == below->second.size()) {
          state[static_cast<size_t>(at)] = kDone;
          stack.pop_back();
          continue;
        }
        const int child = below->second[next++];
        if (state[static_cast<size_t>(child)] == kOpen)
          return error(lists_.at(at),
                       fmt::format("switches that do not contain {} in turn (a cycle through \"{}\")",
                                   fabric_.vertices[static_cast<size_t>(at)].name,
                                   fabric_.vertices[static_cast<size_t>(child)].name));
        if (state[static_cast<size_t>(child)] == kNew) stack.emplace_back(child, 0);
      }
    }
    return {};
  }

  // BlockSizes=30,120: four consecutive blocks of 30 make one of 120.
  Status join_blocks() {
    for (size_t i = 1; i < sizes_.size(); i++) {
      const size_t per_group = sizes_[i] / sizes_[0];
      const size_t per_lower = i == 1 ? 1 : sizes_[i - 1] / sizes_[0];
      std::vector<int> upper;
      for (size_t first = 0; first < blocks_.size(); first += per_group) {
        Result<int> group =
            add_vertex(VertexKind::switch_, fmt::format("blocks{}.{}", sizes_[i], first / per_group),
                       fmt::format("block{}", sizes_[i]), Token{"BlockSizes", 1, 1, false});
        if (!group) return group.status();
        upper.push_back(*group);
        for (size_t b = first; b < std::min(first + per_group, blocks_.size()); b += per_lower)
          add_link(&fabric_, i == 1 ? blocks_[b] : lower_[b / per_lower], *group);
      }
      lower_ = std::move(upper);
    }
    return {};
  }

  const std::string& file_;
  Fabric fabric_;
  std::unordered_map<std::string, int> index_;
  std::vector<Entry> entries_;
  std::unordered_map<int, std::vector<int>> below_;
  std::unordered_map<int, Token> lists_;
  std::vector<int> blocks_, lower_;
  std::vector<uint64_t> sizes_;
};

}  // namespace

bool is_topology_conf(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (std::isspace(static_cast<unsigned char>(text[at])) != 0) {
      at++;
    } else {
      const std::string word = lower(text.substr(at, 16));
      return word.rfind("switchname=", 0) == 0 || word.rfind("blockname=", 0) == 0 ||
             word.rfind("blocksizes=", 0) == 0;
    }
  }
  return false;
}

Result<Fabric> parse_topology_conf(std::string_view text, const std::string& file) {
  return ConfReader(file).read(text);
}

Result<Fabric> parse_topology_addr(std::string_view address, std::string_view pattern,
                                   const std::string& host) {
  constexpr std::string_view kName = "SLURM_TOPOLOGY_ADDR";
  constexpr size_t kMaxParallel = 64;  // switches on one level
  constexpr size_t kMaxLevels = 32;
  std::vector<std::string> kinds;
  for (size_t at = 0; at <= pattern.size();) {
    const size_t dot = std::min(pattern.find('.', at), pattern.size());
    kinds.emplace_back(pattern.substr(at, dot - at));
    at = dot + 1;
  }
  if (kinds.size() > kMaxLevels)
    return error_at("SLURM_TOPOLOGY_ADDR_PATTERN", {pattern, 1, 1, false},
                    fmt::format("at most {} levels", kMaxLevels));
  if (kinds.back() != "node" && kinds.back() != "nodes")
    return error_at("SLURM_TOPOLOGY_ADDR_PATTERN", {pattern, 1, 1, false}, "a pattern that ends in \"node\"");

  Fabric fabric;
  std::vector<int> above;
  size_t at = 0;
  for (size_t level = 0; level < kinds.size(); level++) {
    const bool last = level + 1 == kinds.size();  // a node's own name may have dots
    const size_t dot = last ? address.size() : address.find('.', at);
    if (dot == std::string_view::npos || at > address.size())
      return error_at(kName, {{}, 1, address.size() + 1, false},
                      fmt::format("{} parts, as in the pattern {}", kinds.size(), pattern));
    const Token part = {address.substr(at, dot - at), 1, at + 1, false};
    at = dot + 1;
    Result<std::vector<std::string>> names = expand_hostlist(kName, part, last ? 1 : kMaxParallel);
    if (!names) return names.status();
    std::vector<int> here;
    for (const std::string& name : *names) {
      const std::string& vertex_name = last && !host.empty() ? host : name;
      if (fabric.find(vertex_name) >= 0) return error_at(kName, part, "a name that is not taken yet");
      here.push_back(static_cast<int>(fabric.vertices.size()));
      fabric.vertices.push_back({last ? VertexKind::host : VertexKind::switch_, vertex_name,
                                 last || kinds[level] == "switch" ? "" : kinds[level], -1});
      for (const int upper : above) add_link(&fabric, here.back(), upper);
    }
    above = std::move(here);
  }
  return fabric;
}

SENNIT_TEXT_FORM_ENTRY("slurm_conf", is_topology_conf,
                       [](std::string_view text, const std::string& file, const std::string&) {
                         return parse_topology_conf(text, file);
                       })

}  // namespace sennit
