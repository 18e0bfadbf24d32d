// make_model.cpp: see command/topo/make_model.hpp.
#include "command/topo/make_model.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/core.h>

#include "base/index.hpp"
#include "command/topo/model/origin.hpp"
#include "command/topo/suspects/check.hpp"
#include "cost/rates.hpp"

namespace sennit::topo {
namespace {

class Builder {
 public:
  Builder(Model* model, const Origins& origins, const std::vector<Placement>& ranks)
      : model_(*model),
        origins_(origins),
        inside_(model->fabric.vertices.size()),
        links_(inside_.size()) {
    const Fabric& fabric = model_.fabric;
    std::unordered_map<std::string, int> hosts;
    for (size_t v = 0; v < inside_.size(); v++) {
      if (fabric.vertices[v].kind == VertexKind::host)
        hosts.emplace(fabric.vertices[v].name, static_cast<int>(v));
      if (fabric.vertices[v].host >= 0)
        inside_[index(fabric.vertices[v].host)].push_back(static_cast<int>(v));
    }
    for (size_t l = 0; l < fabric.links.size(); l++) {
      links_[index(fabric.links[l].from)].push_back(l);
      links_[index(fabric.links[l].to)].push_back(l);
    }
    for (const int32_t rank : model_.tree.rank_of_position)
      host_of_position_.push_back(hosts.at(ranks[index(rank)].host));
    for (size_t s = 0; s < model_.suspects.size(); s++) {
      const int v = model_.suspects[s].vertex;
      if (v < 0) continue;
      const int host = fabric.vertices[index(v)].host >= 0 ? fabric.vertices[index(v)].host : v;
      if (fabric.vertices[index(host)].kind == VertexKind::host)
        suspects_of_host_[host].push_back(static_cast<int>(s));
      else
        suspects_of_group_[std::max(0, origins.group_of_vertex[index(v)])].push_back(
            static_cast<int>(s));
    }
  }

  Item build(int g) {
    const Group& group = model_.tree.groups[index(g)];
    Item item;
    item.group = g;
    item.name = group.name;
    item.tier = model_.tree.tiers[group.tier].name;
    item.egress = group.egress;
    item.ingress = group.ingress;
    item.planes = group.planes;
    item.wire = group.wire;
    const bool inner = group.children > 0;
    item.latency_assumed =
        inner && latency_source(model_.tree, g, CostModel{}) == LatencySource::rdma;
    item.latency_ns =
        item.latency_assumed ? planning_latency_ns(model_.tree, g, CostModel{}) : group.latency_ns;
    item.origin = origins_.of_group[index(g)].sources;
    item.cables = origins_.of_group[index(g)].cables;
    const int host = host_of_position_[index(group.first)];
    if (host == host_of_position_[index(group.first + group.size - 1)]) {
      open_host(host, &item);
    } else {
      item.oversubscription = model_.tree.oversubscription(g);
      for (int c = group.first_child; c < group.first_child + group.children; c++) {
        item.children.push_back(build(c));
        item.hosts += item.children.back().hosts;
      }
    }
    if (const auto found = suspects_of_group_.find(g); found != suspects_of_group_.end())
      item.suspects.insert(item.suspects.end(), found->second.begin(), found->second.end());
    return item;
  }

 private:
  void open_host(int host, Item* item) {
    item->kind = ItemKind::host;
    item->vertex = host;
    item->name = model_.fabric.vertices[index(host)].name;
    item->tier = "host";
    item->hosts = 1;
    if (const auto found = suspects_of_host_.find(host); found != suspects_of_host_.end())
      item->suspects = found->second;
    std::unordered_map<int, size_t> numa;  // vertex -> child
    for (const int v : inside_[index(host)]) {
      if (model_.fabric.vertices[index(v)].kind != VertexKind::numa) continue;
      numa[v] = item->children.size();
      item->children.push_back(device(v, nullptr));
    }
    for (const int v : inside_[index(host)]) {
      if (model_.fabric.vertices[index(v)].kind == VertexKind::numa) continue;
      int near = -1;
      Item child = device(v, &near);
      const auto node = numa.find(near);
      (node != numa.end() ? item->children[node->second].children : item->children)
          .push_back(std::move(child));
    }
  }

  // A NUMA node, NIC or GPU: what leads into the host is what it can do; a NIC that has no such
  // link takes its cable's rate. `near`: the NUMA node it is linked with.
  Item device(int v, int* near) const {
    const Vertex& vertex = model_.fabric.vertices[index(v)];
    Item item;
    item.kind = vertex.kind == VertexKind::numa  ? ItemKind::numa
                : vertex.kind == VertexKind::nic ? ItemKind::nic
                                                 : ItemKind::gpu;
    item.tier = vertex.kind == VertexKind::numa  ? "numa"
                : vertex.kind == VertexKind::nic ? "nic"
                                                 : "gpu";
    const std::string& host = model_.fabric.vertices[index(vertex.host)].name;
    item.name =
        vertex.name.rfind(host + "/", 0) == 0 ? vertex.name.substr(host.size() + 1) : vertex.name;
    item.vertex = v;
    if (vertex.kind == VertexKind::numa) return item;
    bool from_inside = false;
    for (const size_t l : links_[index(v)]) {
      const Link& link = model_.fabric.links[l];
      const int other = link.from == v ? link.to : link.from;
      const bool inside =
          other == vertex.host || model_.fabric.vertices[index(other)].host == vertex.host;
      if (near != nullptr && model_.fabric.vertices[index(other)].kind == VertexKind::numa &&
          inside)
        *near = other;
      // Out of the host: into the NIC from inside, or out of it on the cable; out of the GPU.
      const bool out = vertex.kind == VertexKind::gpu || !inside ? link.from == v : link.to == v;
      Capacity& figure = out ? item.egress : item.ingress;
      if (!link.capacity.known() || (from_inside && !inside)) continue;
      if (figure.known() && figure.bytes_per_s >= link.capacity.bytes_per_s &&
          inside == from_inside)
        continue;
      figure = link.capacity;
      item.origin = link.source;
      from_inside = inside;
    }
    return item;
  }

  const Model& model_;
  const Origins& origins_;
  std::vector<std::vector<int>> inside_;    // by host's vertex
  std::vector<std::vector<size_t>> links_;  // by vertex
  std::vector<int> host_of_position_;
  std::unordered_map<int, std::vector<int>> suspects_of_host_, suspects_of_group_;
};

// A task under Slurm knows its own host's way to the top, and nothing of the others'.
std::vector<std::string> find_way_up(const Fabric& fabric) {
  std::vector<std::vector<int>> near(fabric.vertices.size());
  for (const Link& link : fabric.links) near[index(link.from)].push_back(link.to);
  std::vector<bool> seen(near.size(), false);
  std::vector<int> queue;
  for (size_t v = 0; v < near.size(); v++) {
    if (fabric.vertices[v].kind == VertexKind::switch_) continue;
    queue.push_back(static_cast<int>(v));
    seen[v] = true;
  }
  std::vector<std::string> way;
  for (size_t i = 0; i < queue.size(); i++) {
    const Vertex& vertex = fabric.vertices[index(queue[i])];
    if (vertex.kind == VertexKind::switch_) way.push_back(vertex.name);
    for (const int other : near[index(queue[i])]) {
      if (!seen[index(other)]) queue.push_back(other);
      seen[index(other)] = true;
    }
  }
  return way;
}

}  // namespace

Result<Model> make_model(Fabric fabric) {
  Model model;
  model.fabric = std::move(fabric);
  const std::vector<Placement> ranks = ranks_on_all_hosts(model.fabric, 0);
  if (ranks.empty())
    return invalid("the fabric has no hosts: expected a \"host NAME\" or the like");
  Result<TierTree> tree = contract(model.fabric, ranks);
  if (!tree) return tree.status();
  model.tree = *std::move(tree);
  const Result<Origins> origins = find_origins(model.fabric, model.tree, ranks);
  if (!origins) return origins.status();
  for (const Link& link : model.fabric.links)
    for (const int end : {link.from, link.to})
      model.above_known |= model.fabric.vertices[index(end)].kind == VertexKind::switch_;
  SENNIT_RETURN_IF_ERROR(find_suspects(&model, origins->group_of_vertex));
  const bool alone = std::count_if(model.fabric.vertices.begin(), model.fabric.vertices.end(),
                                   [](const Vertex& v) { return v.kind == VertexKind::host; }) == 1;
  if (alone) model.way_up = find_way_up(model.fabric);
  model.root = Builder(&model, *origins, ranks).build(0);
  return model;
}

}  // namespace sennit::topo
