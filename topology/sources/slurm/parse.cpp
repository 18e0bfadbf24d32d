// parse.cpp: reads Slurm's topology.conf and its variables, as topology/sources/slurm/slurm.hpp
// says. Cost: linear in the text and the names that its hostlists stand for.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include <fmt/core.h>

#include "topology/source.hpp"
#include "topology/sources/slurm/graph.hpp"
#include "topology/sources/slurm/slurm.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

class ConfReader {
 public:
  explicit ConfReader(const std::string& file) : file_(file), graph_(file) {}

  Result<Fabric> read(std::string_view text) {
    text_ = text;
    Result<std::vector<std::vector<Token>>> lines = scan(text, file_, false);
    if (!lines) return lines.status();
    for (const std::vector<Token>& line : *lines) SENNIT_RETURN_IF_ERROR(declare(line));
    // As scontrol prints them: a size on each line, and not always in order.
    if (!graph_.has_block_sizes())
      for (const auto& [size, token] : printed_sizes_)
        SENNIT_RETURN_IF_ERROR(graph_.add_block_size(token));
    return graph_.finish();
  }

 private:
  Status error(const Token& token, std::string_view expected) const {
    return error_at(file_, token, expected);
  }

  // Behind the "=" of the i-th word. A quote there, and nowhere else, begins a value that may have
  // blanks: `i` is then the word in which it ends.
  Result<Token> value_of(const std::vector<Token>& line, size_t equals, size_t* i) const {
    const Token& word = line[*i];
    const Token value = {word.text.substr(equals + 1), word.line, word.column + equals + 1, false};
    if (!value.text.starts_with('"')) return value;
    const auto begin = static_cast<size_t>(value.text.data() - text_.data()) + 1;
    const size_t close = std::min(text_.find_first_of("\"\n#", begin), text_.size());
    if (close == text_.size() || text_[close] != '"')
      return error({text_.substr(begin - 1, close - begin + 1), value.line, value.column, false},
                   "a closing quote on this line");
    const char* const behind = text_.data() + close + 1;
    while (line[*i].text.data() + line[*i].text.size() < behind) ++*i;
    const Token& last = line[*i];
    if (last.text.data() + last.text.size() > behind)
      return error(last, "a blank behind the closing quote");
    return Token{text_.substr(begin, close - begin), value.line, value.column + 1, false};
  }

  Status declare(const std::vector<Token>& line) {
    int vertex = -1;
    bool unnamed = false;  // a line that may go without SwitchName or BlockName
    std::optional<Token> switches, nodes;
    for (size_t i = 0; i < line.size(); i++) {
      const Token& word = line[i];
      const size_t equals = word.text.find('=');
      if (equals == std::string_view::npos) return error(word, "KEY=VALUE");
      const std::string key = lower(word.text.substr(0, equals));
      const Result<Token> found = value_of(line, equals, &i);
      if (!found) return found.status();
      const Token& value = *found;
      if (value.text.empty())
        return error(value, fmt::format("a value for {}", word.text.substr(0, equals)));
      if (key == "switchname" || key == "blockname") {
        if (vertex >= 0) return error(word, "one SwitchName or BlockName on a line");
        Result<int> added = graph_.add_switch(value, key == "blockname" ? "block" : "");
        if (!added) return added.status();
        vertex = *added;
      } else if (key == "switches") {
        switches = value;
      } else if (key == "nodes") {
        nodes = value;
      } else if (key == "blocksizes") {
        unnamed = &word == line.data() && i + 1 == line.size();
        SENNIT_RETURN_IF_ERROR(read_block_sizes(value));
      } else if (key == "aggregatedblock") {
        unnamed = true;  // blocks of a larger BlockSize; which ones follows from the sizes
      } else if (key == "blocksize") {
        uint64_t size = 0;
        std::from_chars(value.text.data(), value.text.data() + value.text.size(), size);
        printed_sizes_.emplace(size, value);
      } else if (key != "linkspeed" && key != "level" && key != "blockindex") {
        return error(word, "SwitchName, Switches, Nodes, BlockName, BlockSizes or LinkSpeed");
      }
    }
    if (vertex < 0)
      return unnamed
                 ? Status()
                 : error(line[0], "a line that begins with SwitchName, BlockName or BlockSizes");
    if (!switches && !nodes) {
      const Token& last = line.back();
      return error({{}, last.line, last.column + last.text.size(), false}, "Nodes= or Switches=");
    }
    graph_.add_below(vertex, switches ? *switches : *nodes, switches.has_value());
    return {};
  }

  Status read_block_sizes(const Token& value) {
    for (size_t at = 0; at <= value.text.size();) {
      const size_t comma = std::min(value.text.find(',', at), value.text.size());
      SENNIT_RETURN_IF_ERROR(graph_.add_block_size(
          {value.text.substr(at, comma - at), value.line, value.column + at, false}));
      at = comma + 1;
    }
    return {};
  }

  const std::string& file_;
  std::string_view text_;
  SlurmGraph graph_;
  std::map<uint64_t, Token> printed_sizes_;
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
             word.rfind("blocksizes=", 0) == 0 || word.rfind("aggregatedblock", 0) == 0;
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
    return error_at("SLURM_TOPOLOGY_ADDR_PATTERN", {pattern, 1, 1, false},
                    "a pattern that ends in \"node\"");

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
      if (fabric.find(vertex_name) >= 0)
        return error_at(kName, part, "a name that is not taken yet");
      here.push_back(static_cast<int>(fabric.vertices.size()));
      fabric.vertices.push_back({last ? VertexKind::host : VertexKind::switch_, vertex_name,
                                 last || kinds[level] == "switch" ? "" : kinds[level], -1});
      for (const int upper : above) add_slurm_link(&fabric, here.back(), upper);
    }
    above = std::move(here);
  }
  return fabric;
}

SENNIT_TEXT_FORM_ENTRY(slurm_conf, is_topology_conf,
                       [](std::string_view text, const std::string& file, const std::string&) {
                         return parse_topology_conf(text, file);
                       })

}  // namespace sennit
