// source.cpp: a toy of a source and its text form. One file and a folder of fixtures,
// tests/data/topology/forms/toy, are all that a new one needs.
//
//   toy network
//   leaf0 h0 h1     # a switch and its hosts; all switches hang below the switch "core"
//   leaf1 h2 h3
//
// The source reads the file that TOY_NETWORK names.
#include <algorithm>
#include <cstdlib>

#include "topology/source.hpp"
#include "topology/text/read_file.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr std::string_view kFirstLine = "toy network";

bool is_toy(std::string_view text) { return text.substr(0, kFirstLine.size()) == kFirstLine; }

void hang(Fabric& fabric, VertexKind kind, std::string_view name, int above) {
  const int vertex = static_cast<int>(fabric.vertices.size());
  fabric.vertices.push_back({kind, std::string(name), "", -1});
  Link link;
  link.from = vertex;
  link.to = above;
  fabric.links.push_back(link);
  std::swap(link.from, link.to);
  fabric.links.push_back(link);
}

Result<Fabric> parse_toy(std::string_view text, const std::string& file, const std::string&) {
  if (!is_toy(text)) return error_at(file, {{}, 1, 1}, "the line \"toy network\"");
  const auto lines = scan(text, file, /*quotes=*/false);
  if (!lines) return lines.status();
  Fabric fabric;
  fabric.vertices.push_back({VertexKind::switch_, "core", "", -1});
  for (size_t i = 1; i < lines->size(); i++) {
    const int above = static_cast<int>(fabric.vertices.size());
    for (const Token& word : (*lines)[i]) {
      const bool plain = std::all_of(word.text.begin(), word.text.end(),
                                     [](char c) { return is_letter(c) || is_digit(c); });
      if (!plain || word.text.size() > kMaxNameBytes || fabric.find(word.text) >= 0)
        return error_at(file, word, "a name of letters and digits that is not taken");
      const bool first = &word == &(*lines)[i].front();
      hang(fabric, first ? VertexKind::switch_ : VertexKind::host, word.text, first ? 0 : above);
    }
  }
  return fabric;
}

std::string path_of(const SourceContext&) {
  const char* const path = std::getenv("TOY_NETWORK");
  return path == nullptr ? std::string() : path;
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  const std::string path = path_of(context);
  if (path.empty()) return std::optional<Fabric>();
  const Result<std::string> text = read_file(path);
  if (!text) return text.status();
  Result<Fabric> fabric = parse_toy(*text, path, context.host);
  if (!fabric) return fabric.status();
  return std::optional<Fabric>(*std::move(fabric));
}

}  // namespace

SENNIT_SOURCE_ENTRY(toy, 55, false, read, false, path_of)
SENNIT_TEXT_FORM_ENTRY(toy, is_toy, parse_toy)

}  // namespace sennit
