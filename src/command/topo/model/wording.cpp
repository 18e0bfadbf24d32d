// wording.cpp: see command/topo/model/wording.hpp.
#include "command/topo/model/wording.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/core.h>

namespace sennit::topo {

std::string readable_rate(uint64_t bytes_per_s, bool bits) {
  if (bytes_per_s == 0) return "unknown";
  double value = static_cast<double>(bytes_per_s) * (bits ? 8 : 1);
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (value >= 999.95 && prefix < 5) {
    value /= 1000;
    prefix++;
  }
  return fmt::format("{:.4g} {}{}/s", value, prefixes[prefix], bits ? "bit" : "B");
}

std::string readable_ratio(double ratio) { return fmt::format("{:.3g}:1", ratio); }

std::string plural(int count, const std::string& tier) {
  std::string word = tier.empty() ? "group" : tier;
  if (tier.rfind("tier", 0) == 0) word = "group";  // the contraction's name for what has none
  if (tier == "nic") word = "NIC";
  if (tier == "gpu") word = "GPU";
  if (tier == "numa") word = "NUMA node";
  if (count == 1) return "1 " + word;
  if (tier == "leaf") return fmt::format("{} leaves", count);
  const bool hiss = word.back() == 's' || word.back() == 'x' ||
                    (word.size() > 1 && word.substr(word.size() - 2) == "ch");
  return fmt::format("{} {}{}", count, word, hiss ? "es" : "s");
}

std::string rate_words(const Item& item) {
  const bool bits = item.kind != ItemKind::gpu;
  const std::string out = readable_rate(item.egress.bytes_per_s, bits);
  if (item.egress.bytes_per_s == item.ingress.bytes_per_s) return out;
  return fmt::format("{} out, {} in", out, readable_rate(item.ingress.bytes_per_s, bits));
}

std::string rate_words(const Fold& fold) {
  const Item& item = *fold.first;
  if (item.egress.provenance != Provenance::measured &&
      item.ingress.provenance != Provenance::measured)
    return rate_words(item);
  const bool bits = item.kind != ItemKind::gpu;
  const std::string out = readable_rate(fold.about_egress_bytes_per_s, bits);
  const std::string in = readable_rate(fold.about_ingress_bytes_per_s, bits);
  return "about " + (out == in ? out : fmt::format("{} out, {} in", out, in));
}

std::string members_words(const Item& item) {
  std::vector<std::pair<std::string, int>> tiers;
  for (const Item& child : item.children) {
    const auto seen = std::find_if(tiers.begin(), tiers.end(),
                                   [&](const auto& t) { return t.first == child.tier; });
    if (seen == tiers.end())
      tiers.emplace_back(child.tier, 1);
    else
      seen->second++;
  }
  std::string text;
  for (const auto& [tier, count] : tiers) text += (text.empty() ? "" : " + ") + plural(count, tier);
  return text;
}

std::string origin_words(const Item& item) {
  if (!item.egress.known() && !item.ingress.known()) return "";
  const Capacity& said = item.egress.known() ? item.egress : item.ingress;
  return item.origin.empty() ? name(said.provenance)
                             : fmt::format("{}, {}", name(said.provenance), item.origin);
}

std::string heading(const Reading& reading, const Model& model) {
  const std::string name = !model.fabric.name.empty()
                               ? fmt::format("fabric \"{}\"", model.fabric.name)
                           : model.above_known ? std::string("fabric")
                                               : fmt::format("host {}", reading.host);
  if (!model.above_known && model.root.hosts == 1) return name;
  std::string text = fmt::format("{}: {}", name, plural(model.root.hosts, "host"));
  int gpus = 0;
  for (const Vertex& v : model.fabric.vertices) gpus += v.kind == VertexKind::gpu;
  if (gpus > 0) text += fmt::format(", {}", plural(gpus, "gpu"));
  return text;
}

std::string from_words(const Reading& reading) {
  std::string text;
  for (const SourceReport& source : reading.sources) {
    if (!source.said) continue;
    if (!text.empty()) text += ", ";
    text += source.name;
    if (!source.where.empty()) text += " " + source.where;
  }
  return text.empty() ? "no source" : text;
}

std::string way_up_words(const Model& model) {
  std::string text;
  for (const std::string& name : model.way_up)
    text += (text.empty() ? "above it: " : ", then ") + name;
  if (!text.empty())
    text += "; of other hosts nothing is known here (a job's ranks tell each other)";
  return text;
}

std::vector<std::string> ways_to_learn() {
  return {
      "a fabric file: SENNIT_FABRIC=FILE, or /etc/sennit/fabric for every job (syntax: "
      "topology/FORMATS.md)",
      "Slurm or a readable subnet: run this inside a job, or as a user who may query the "
      "InfiniBand subnet",
      "probing: inside a job, mpirun -N 1 sennit topo --probe, or SENNIT_PROBE=1 for all its "
      "programs"};
}

}  // namespace sennit::topo
