// yaml.cpp: Slurm's topology.yaml: a list of named topologies, each a tree of switches, a list of
// blocks, or flat. One is read: the cluster's default, else the first; its name becomes the
// fabric's. NVIDIA Topograph writes this file too. Capacities stay unknown. Cost: of yaml-cpp's
// document, and as topology/sources/slurm/graph.hpp says.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "topology/source.hpp"
#include "topology/sources/slurm/graph.hpp"
#include "topology/sources/slurm/slurm.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

bool is_true(const std::optional<YAML::Node>& node) {
  const std::string word = node && node->IsScalar() ? lower(node->Scalar()) : "";
  return word == "true" || word == "yes" || word == "on" || word == "1";
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), is_plain);
}

class YamlReader {
 public:
  explicit YamlReader(const std::string& file) : file_(file), graph_(file) {}

  Result<Fabric> read(const YAML::Node& document) {
    constexpr std::string_view kTopologies = "a list of topologies (\"- topology: NAME\")";
    SENNIT_RETURN_IF_ERROR(expect_list(document, kTopologies));
    std::vector<Fields> all;
    size_t chosen = 0;
    for (const YAML::Node& topology : document) {
      Result<Fields> read =
          fields(topology, {"topology", "cluster_default", "tree", "block", "flat"}, kTopologies);
      if (!read) return read.status();
      all.push_back(*std::move(read));
      if (is_true(all.back()[1]) && !is_true(all[chosen][1])) chosen = all.size() - 1;
    }
    const std::optional<YAML::Node>& name = all[chosen][0];
    const std::optional<YAML::Node>& tree = all[chosen][2];
    const std::optional<YAML::Node>& block = all[chosen][3];
    if (!name || !is_name(token(*name).text))
      return error(document[chosen],
                   fmt::format("topology: NAME, of at most {} bytes, none of them a quote or a "
                               "control character",
                               kMaxNameBytes));
    if (tree.has_value() + block.has_value() + is_true(all[chosen][4]) != 1)
      return error(*name, "one of tree, block or flat in this topology");
    if (tree) SENNIT_RETURN_IF_ERROR(read_tree(*tree));
    if (block) SENNIT_RETURN_IF_ERROR(read_blocks(*block));
    Result<Fabric> fabric = graph_.finish();
    if (fabric) fabric->name = name->Scalar();
    return fabric;
  }

 private:
  using Fields = std::vector<std::optional<YAML::Node>>;  // in the order of the keys asked for

  static Token token(const YAML::Node& node) {
    const YAML::Mark mark = node.Mark();
    return {node.IsScalar() ? std::string_view(node.Scalar()) : std::string_view(),
            static_cast<size_t>(std::max(mark.line, 0)) + 1,
            static_cast<size_t>(std::max(mark.column, 0)) + 1, false};
  }
  Status error(const YAML::Node& node, std::string_view expected) const {
    Token here = token(node);
    if (node.IsNull()) here.text = "nothing";
    if (node.IsMap()) here.text = "{...}";
    if (node.IsSequence()) here.text = "[...]";
    return error_at(file_, here, expected);
  }

  // The first key must be there.
  Result<Fields> fields(const YAML::Node& map, const std::vector<std::string_view>& keys,
                        std::string_view expected) const {
    if (!map.IsMap()) return error(map, expected);
    Fields found(keys.size());
    for (const auto& entry : map) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const auto at = std::find(keys.begin(), keys.end(), key);
      if (at == keys.end())
        return error(entry.first, fmt::format("one of {}", fmt::join(keys, ", ")));
      std::optional<YAML::Node>& field = found[static_cast<size_t>(at - keys.begin())];
      if (field) return error(entry.first, fmt::format("{} only once", key));
      field.emplace(entry.second);
    }
    if (!found[0]) return error(map, fmt::format("{} in this map", keys[0]));
    return found;
  }

  Status expect_list(const YAML::Node& list, std::string_view what) const {
    return list.IsSequence() && list.size() > 0 ? Status() : error(list, what);
  }

  // The list of entries of a tree or of blocks: KEY: NAME, and a hostlist of what is below.
  Status read_switches(const YAML::Node& list, const std::vector<std::string_view>& keys,
                       const std::string& tier) {
    const std::string what = fmt::format("a list of entries (\"- {}: NAME\")", keys[0]);
    SENNIT_RETURN_IF_ERROR(expect_list(list, what));
    for (const YAML::Node& entry : list) {
      const Result<Fields> read = fields(entry, keys, what);
      if (!read) return read.status();
      const Result<int> vertex = graph_.add_switch(token(*(*read)[0]), tier);
      if (!vertex) return vertex.status();
      const bool has_nodes = (*read)[1].has_value();
      const bool has_children = read->size() > 2 && (*read)[2].has_value();
      if (has_nodes == has_children)
        return error(*(*read)[0], keys.size() > 2 ? "one of nodes or children in this entry"
                                                  : "nodes in this entry");
      const YAML::Node& below = *(*read)[has_children ? 2 : 1];
      if (!below.IsScalar()) return error(below, "a hostlist, e.g. node[01-16]");
      graph_.add_below(*vertex, token(below), has_children);
    }
    return {};
  }

  Status read_tree(const YAML::Node& tree) {
    const Result<Fields> read = fields(tree, {"switches"}, "switches");
    return read ? read_switches(*(*read)[0], {"switch", "nodes", "children"}, "") : read.status();
  }

  Status read_blocks(const YAML::Node& block) {
    const Result<Fields> read = fields(block, {"blocks", "block_sizes"}, "blocks and block_sizes");
    if (!read) return read.status();
    if (const std::optional<YAML::Node>& sizes = (*read)[1]; sizes && sizes->IsScalar()) {
      SENNIT_RETURN_IF_ERROR(graph_.add_block_size(token(*sizes)));
    } else if (sizes) {
      SENNIT_RETURN_IF_ERROR(expect_list(*sizes, "a list of numbers of nodes"));
      for (const YAML::Node& size : *sizes)
        SENNIT_RETURN_IF_ERROR(graph_.add_block_size(token(size)));
    }
    return read_switches(*(*read)[0], {"block", "nodes"}, "block");
  }

  const std::string& file_;
  SlurmGraph graph_;
};

// The first thing in it is a list's entry, or a document's begin.
bool is_topology_yaml(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t first = text.find_first_not_of(" \t\r", at);
    if (first < end && text[first] != '#') {
      const std::string_view line = text.substr(first, end - first);
      if (line.substr(0, 3) != "---" && line.substr(0, 5) != "%YAML")
        return line.substr(0, 2) == "- " && line.find("topology") != std::string_view::npos;
    }
    at = end + 1;
  }
  return false;
}

Result<Fabric> parse_topology_yaml(std::string_view text, const std::string& file,
                                   const std::string&) {
  try {
    const YAML::Node document = YAML::Load(std::string(text));
    return YamlReader(file).read(document);
  } catch (const YAML::Exception& e) {
    const auto line = static_cast<size_t>(std::max(e.mark.line, 0)) + 1;
    const auto column = static_cast<size_t>(std::max(e.mark.column, 0)) + 1;
    return invalid(fmt::format("{}:{}:{}: expected YAML: {}", file, line, column, e.msg));
  }
}

}  // namespace

SENNIT_TEXT_FORM_ENTRY(slurm_yaml, is_topology_yaml, parse_topology_yaml)

}  // namespace sennit
