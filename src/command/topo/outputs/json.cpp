// `sennit topo --json`: keys in src/command/topo/KEYS.md; they stay. Unknown figures are null.
#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "command/topo/outputs/outputs.hpp"

namespace sennit::topo {
namespace {

using Json = nlohmann::ordered_json;

Json figure(const Capacity& capacity) {
  return {{"bytes_per_s", capacity.known() ? Json(capacity.bytes_per_s) : Json()},
          {"provenance", name(capacity.provenance)}};
}

Json devices(const Item& item) {
  Json list = Json::array();
  const auto add = [&](const Item& device, const Json& numa) {
    list.push_back({{"kind", device.tier},
                    {"name", device.name},
                    {"numa", numa},
                    {"egress", figure(device.egress)},
                    {"ingress", figure(device.ingress)},
                    {"origin", device.origin}});
  };
  for (const Item& child : item.children) {
    if (child.kind != ItemKind::numa) add(child, Json());
    for (const Item& device : child.children) add(device, child.name);
  }
  return list;
}

void add_items(const Item& item, int parent, Json* groups) {
  const auto index = static_cast<int>(groups->size());
  Json group = {
      {"index", index},
      {"parent", parent < 0 ? Json() : Json(parent)},
      {"tier", item.tier},
      {"name", item.name},
      {"hosts", item.hosts},
      {"egress", figure(item.egress)},
      {"ingress", figure(item.ingress)},
      {"origin", item.origin},
      {"cables", item.cables > 0 ? Json(item.cables) : Json()},
      {"planes", item.planes},
      {"oversubscription", item.oversubscription > 0 ? Json(item.oversubscription) : Json()},
      {"latency_ns", item.latency_ns > 0 ? Json(item.latency_ns) : Json()},
      {"latency_assumed", item.latency_assumed},
      {"wire", item.wire == Wire::unknown ? Json() : Json(name(item.wire))},
      {"suspects", item.suspects}};
  if (item.kind == ItemKind::host) group["devices"] = devices(item);
  groups->push_back(std::move(group));
  if (item.kind != ItemKind::group) return;
  for (const Item& child : item.children) add_items(child, index, groups);
}

}  // namespace

std::string json_of(const Reading& reading, const Model& model) {
  Json json = {{"sennit_topo", 1},
               {"name", model.fabric.name},
               {"fingerprint", fmt::format("{:016x}", model.fabric.fingerprint())},
               {"hosts", model.root.hosts},
               {"above_the_nic", model.above_known ? "known" : "unknown"},
               {"way_up", model.way_up},
               {"sources", Json::array()},
               {"groups", Json::array()},
               {"suspects", Json::array()},
               {"conflicts", model.fabric.conflicts},
               {"notes", model.fabric.notes}};
  for (const std::string& note : model.notes) json["notes"].push_back(note);
  for (const SourceReport& source : reading.sources)
    json["sources"].push_back({{"name", source.name},
                               {"priority", source.priority},
                               {"said", source.said},
                               {"error", source.error.empty() ? Json() : Json(source.error)},
                               {"note", source.note.empty() ? Json() : Json(source.note)}});
  add_items(model.root, -1, &json["groups"]);
  for (const Suspect& suspect : model.suspects)
    json["suspects"].push_back(
        {{"kind", suspect.kind}, {"where", suspect.where}, {"what", suspect.what}});
  return json_to_text(json, 1) + "\n";
}

}  // namespace sennit::topo
