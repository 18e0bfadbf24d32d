// read.cpp: see command/topo/read/read.hpp.
#include "command/topo/read/read.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/options.hpp"
#include "topology/fabric/contraction.hpp"
#include "topology/source.hpp"
#include "topology/text/read_file.hpp"

namespace sennit::topo {
namespace {

constexpr std::string_view kSynthetic = "synthetic:", kVariable = "SENNIT_FABRIC: ";

// The one source that this is for.
Status ask(const std::string& fabric_file, Reading* reading) {
  const SourceContext context{this_host(), fabric_file};
  for (const Source& source : sources()) {
    if (!source.reads_fabric_file) continue;
    Result<std::optional<Fabric>> said = source.read(context);
    if (!said) return said.status();
    if (!said->has_value()) continue;
    reading->fabric = merge(Fabric{}, **said, source.name);  // writes down who said so
    reading->sources.push_back(
        {std::string(source.name), source.priority, true, "", "", reading->file});
    return {};
  }
  return invalid(fmt::format("{}: says nothing", fabric_file));
}

}  // namespace

Result<Reading> read_one(const std::string& file) {
  Reading reading;
  reading.file = file;
  if (file.rfind(kSynthetic, 0) == 0) {
    SENNIT_RETURN_IF_ERROR(ask(file, &reading));
  } else if (file_exists(file)) {
    // Once, for it may be a pipe.
    if (const Status asked = ask(file, &reading); !asked.ok()) {
      // The source names SENNIT_FABRIC where the file cannot be read, which nobody has set.
      const std::string& text = asked.text();
      const size_t named = text.starts_with(kVariable) ? kVariable.size() : 0;
      return Status(asked.kind(), text.substr(named));
    }
  } else {
    const Status made = ask(std::string(kSynthetic) + file, &reading);
    const bool looks_like_path = file.find_first_of("=;") == file.npos;
    if (!made.ok() && looks_like_path)
      return invalid(
          fmt::format("{}: no such file, and no synthetic tree either (such as meta24k)", file));
    SENNIT_RETURN_IF_ERROR(made);
  }
  if (reading.fabric.name.empty()) reading.fabric.name = file.substr(file.rfind('/') + 1);
  return reading;
}

// A login node's own inside has no place in a network that does not know it.
Result<Reading> read_here() {
  Reading reading;
  reading.host = this_host();
  reading.file = option_text("SENNIT_FABRIC");
  HostIndex hosts;
  bool network = false, placed = false;
  const auto is_switch = [](const Vertex& v) { return v.kind == VertexKind::switch_; };
  std::vector<std::pair<const Source*, Fabric>> said;
  const SourceContext context{reading.host, reading.file};
  for (const Source& source : sources()) {
    SourceReport report{std::string(source.name), source.priority, false, ""};
    Result<std::optional<Fabric>> answer = source.read(context);
    if (!answer && source.reads_fabric_file) return answer.status();
    if (!answer) {
      (is_hint(answer.status()) ? report.note : report.error) = answer.status().text();
    } else if (answer->has_value()) {
      report.said = true;
      if (source.where != nullptr) report.where = source.where(context);
      for (const Vertex& v : (*answer)->vertices) {
        if (v.kind != VertexKind::host || source.per_host) continue;
        network = true;
        hosts.add(v.name, 0);
      }
      const std::vector<Vertex>& vertices = (*answer)->vertices;
      placed |= source.per_host && std::any_of(vertices.begin(), vertices.end(), is_switch);
      said.emplace_back(&source, **std::move(answer));
    }
    reading.sources.push_back(std::move(report));
  }
  reading.outside = network && !placed && hosts.find(reading.host) < 0;
  Merger merger;
  for (const auto& [source, fabric] : said)
    if (!source->per_host || !reading.outside) merger.add(fabric, source->name);
  reading.fabric = merger.take();
  return reading;
}

}  // namespace sennit::topo
