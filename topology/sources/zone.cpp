// zone.cpp: where a host stands, as some sites write it into a file on every host, in the style of
// fbwhoami: KEY=VALUE lines of which one is
//   DEVICE_BACKEND_NETWORK_TOPOLOGY=dc/zone//rtsw098.c083.f00.dc
// from the outermost level inwards, levels that do not apply left empty, the rack's switch last.
// The switch keeps its name, by which LLDP knows it too; a level above is called by its whole path,
// so that two zones "z1" in two data centres are two. Capacities stay unknown. Cost: linear in the
// file.
#include <algorithm>
#include <array>
#include <vector>

#include <fmt/core.h>

#include "topology/source.hpp"
#include "topology/text/read_file.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr std::string_view kKey = "DEVICE_BACKEND_NETWORK_TOPOLOGY=";
constexpr size_t kMaxLevels = 16;

// The values of the key, each with its place.
std::vector<Token> values_of(std::string_view text) {
  std::vector<Token> values;
  size_t line = 1;
  for (size_t at = 0; at < text.size(); line++) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view words = text.substr(at, end - at);
    at = end + 1;
    if (words.substr(0, kKey.size()) != kKey) continue;
    Token value = {words.substr(kKey.size()), line, kKey.size() + 1, false};
    while (!value.text.empty() && (value.text.back() == '\r' || value.text.back() == ' '))
      value.text.remove_suffix(1);
    if (value.text.size() >= 2 && value.text.front() == '"' && value.text.back() == '"') {
      value.text = value.text.substr(1, value.text.size() - 2);
      value.column++;
    }
    values.push_back(value);
  }
  return values;
}

Result<Fabric> parse_zone(std::string_view text, const std::string& file, const std::string& host) {
  const std::vector<Token> values = values_of(text);
  if (values.empty())
    return error_at(file, {{}, 1, 1, false}, fmt::format("a line {}dc/zone//switch", kKey));
  if (values.size() > 1) return error_at(file, values[1], fmt::format("{} only once", kKey));
  const Token& value = values[0];
  std::vector<Token> levels;  // empty ones too
  for (size_t at = 0; at <= value.text.size();) {
    const size_t slash = std::min(value.text.find('/', at), value.text.size());
    levels.push_back({value.text.substr(at, slash - at), value.line, value.column + at, false});
    at = slash + 1;
  }
  if (levels.size() > kMaxLevels)
    return error_at(file, value, fmt::format("at most {} levels", kMaxLevels));
  if (levels.back().text.empty())
    return error_at(file, levels.back(), "the rack's switch behind the last \"/\"");
  // Where there are the four levels that the site's documentation knows.
  constexpr std::array<std::string_view, 4> kTiers = {"dc", "zone", "cluster", "rack"};
  Fabric fabric;
  std::string path;
  int above = -1;
  const auto hang = [&](VertexKind kind, std::string name, std::string_view tier) {
    const auto vertex = static_cast<int>(fabric.vertices.size());
    fabric.vertices.push_back({kind, std::move(name), std::string(tier), -1});
    if (above >= 0) {
      Link link;
      link.from = vertex;
      link.to = above;
      fabric.links.push_back(link);
      std::swap(link.from, link.to);
      fabric.links.push_back(link);
    }
    above = vertex;
  };
  for (size_t i = 0; i < levels.size(); i++) {
    const std::string_view level = levels[i].text;
    if (level.empty()) continue;
    const bool last = i + 1 == levels.size();
    if (level.size() + path.size() + 1 > kMaxNameBytes)
      return error_at(file, levels[i], fmt::format("a path of at most {} bytes", kMaxNameBytes));
    if (!std::all_of(level.begin(), level.end(), is_plain))
      return error_at(file, levels[i], "a name without quotes and control characters");
    path += path.empty() ? std::string(level) : fmt::format("/{}", level);
    std::string name = last ? std::string(level) : path;
    if (name == host || fabric.find(name) >= 0)
      return error_at(file, levels[i],
                      "a switch with another name than the host and the levels above");
    hang(VertexKind::switch_, std::move(name),
         levels.size() == kTiers.size() ? kTiers[i]
         : last                         ? "rack"
                                        : "");
  }
  hang(VertexKind::host, host, "");
  return fabric;
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  constexpr const char* kFile = "/etc/fbwhoami";
  if (!file_exists(kFile)) return std::optional<Fabric>();
  const Result<std::string> text = read_file(kFile);
  if (!text) return text.status();
  if (values_of(*text).empty()) return std::optional<Fabric>();
  Result<Fabric> fabric = parse_zone(*text, kFile, context.host);
  if (!fabric) return fabric.status();
  return std::optional<Fabric>(*std::move(fabric));
}

}  // namespace

SENNIT_SOURCE_ENTRY(zone, 45, true, read)
SENNIT_TEXT_FORM_ENTRY(
    zone, [](std::string_view text) { return !values_of(text).empty(); }, parse_zone)

}  // namespace sennit
