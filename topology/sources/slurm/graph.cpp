// graph.cpp: see topology/sources/slurm/graph.hpp.
#include "topology/sources/slurm/graph.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "topology/fabric/contraction.hpp"
#include "topology/sources/slurm/slurm.hpp"

namespace sennit {

void add_slurm_link(Fabric* fabric, int a, int b) {
  Link link;
  link.from = a;
  link.to = b;
  fabric->links.push_back(link);
  std::swap(link.from, link.to);
  fabric->links.push_back(link);
}

Result<int> SlurmGraph::add_vertex(VertexKind kind, const std::string& name,
                                   const std::string& tier, const Token& at) {
  if (fabric_.vertices.size() >= kMaxVertices)
    return error(at, fmt::format("at most {} switches and nodes in all", kMaxVertices));
  const int vertex = static_cast<int>(fabric_.vertices.size());
  if (!index_.emplace(name, vertex).second)
    return error(at, fmt::format("a name that is not taken yet (\"{}\" is)", name));
  fabric_.vertices.push_back({kind, name, tier, -1});
  return vertex;
}

Result<int> SlurmGraph::add_switch(const Token& name, const std::string& tier) {
  if (name.text.empty()) return error(name, "a name");
  if (name.text.size() > kMaxNameBytes)
    return error(name, fmt::format("a name of at most {} bytes", kMaxNameBytes));
  // A blank would end it where a hostlist names it.
  const auto fits = [](char c) { return is_plain(c) && c != ' '; };
  if (!std::all_of(name.text.begin(), name.text.end(), fits))
    return error(name, "a name without blanks, quotes and control characters");
  Result<int> vertex = add_vertex(VertexKind::switch_, std::string(name.text), tier, name);
  if (vertex && tier == "block") blocks_.push_back(*vertex);
  return vertex;
}

void SlurmGraph::add_below(int vertex, const Token& list, bool switches) {
  entries_.push_back({vertex, list, switches});
}

Status SlurmGraph::add_block_size(const Token& token) {
  uint64_t size = 0;
  const char* const end = token.text.data() + token.text.size();
  const auto [stop, failed] = std::from_chars(token.text.data(), end, size);
  if (failed != std::errc() || stop != end || size == 0 || size > kMaxVertices)
    return error(token, "a number of nodes");
  if (!sizes_.empty() && (size <= sizes_.back() || size % sizes_.back() != 0))
    return error(token, "a larger multiple of the size before it");
  sizes_.push_back(size);
  sizes_at_ = token;
  return {};
}

Result<Fabric> SlurmGraph::finish() {
  for (const Below& entry : entries_) SENNIT_RETURN_IF_ERROR(connect(entry));
  SENNIT_RETURN_IF_ERROR(check_cycles());
  SENNIT_RETURN_IF_ERROR(join_blocks());
  return std::move(fabric_);
}

Status SlurmGraph::connect(const Below& entry) {
  const Token& list = entry.list;
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
    if (entry.switches && !is_switch)
      return error(list, fmt::format("switches that this file declares (\"{}\" is none)", name));
    if (!entry.switches && is_switch)
      return error(list, fmt::format("nodes (\"{}\" is a switch)", name));
    if (below < 0) {
      Result<int> vertex = add_vertex(VertexKind::host, name, "", list);
      if (!vertex) return vertex.status();
      below = *vertex;
    }
    if (entry.switches) below_[entry.vertex].push_back(below);
    if (entry.switches) lists_[entry.vertex] = list;
    add_slurm_link(&fabric_, below, entry.vertex);
  }
  return {};
}

// Depth first over "contains"; a switch met again while it is still open contains itself.
Status SlurmGraph::check_cycles() const {
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
Status SlurmGraph::join_blocks() {
  for (size_t i = 1; i < sizes_.size(); i++) {
    const size_t per_group = sizes_[i] / sizes_[0];
    const size_t per_lower = i == 1 ? 1 : sizes_[i - 1] / sizes_[0];
    std::vector<int> upper;
    for (size_t first = 0; first < blocks_.size(); first += per_group) {
      Result<int> group =
          add_vertex(VertexKind::switch_, fmt::format("blocks{}.{}", sizes_[i], first / per_group),
                     fmt::format("block{}", sizes_[i]), sizes_at_);
      if (!group) return group.status();
      upper.push_back(*group);
      for (size_t b = first; b < std::min(first + per_group, blocks_.size()); b += per_lower)
        add_slurm_link(&fabric_, i == 1 ? blocks_[b] : lower_[b / per_lower], *group);
    }
    lower_ = std::move(upper);
  }
  return {};
}

Result<std::string> missing_nodes(const Fabric& fabric, const std::string& file,
                                  std::string_view nodelist) {
  constexpr size_t kNamed = 8;
  if (nodelist.empty()) return std::string();
  const Result<std::vector<std::string>> nodes =
      expand_hostlist("SLURM_JOB_NODELIST", {nodelist, 1, 1, false}, kMaxVertices);
  if (!nodes) return nodes.status();
  HostIndex known;
  for (size_t v = 0; v < fabric.vertices.size(); v++)
    if (fabric.vertices[v].kind == VertexKind::host)
      known.add(fabric.vertices[v].name, static_cast<int>(v));
  std::vector<std::string> missing;
  for (const std::string& node : *nodes)
    if (known.find(node) < 0) missing.push_back(node);
  if (missing.empty()) return std::string();
  const size_t named = std::min(missing.size(), kNamed);
  return fmt::format(
      "{} of the job's {} nodes are not in {}: {}{}; they hang below the root, by unknown links",
      missing.size(), nodes->size(), file,
      fmt::join(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(named), ", "),
      named < missing.size() ? ", ..." : "");
}

}  // namespace sennit
