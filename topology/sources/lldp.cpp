// lldp.cpp: see topology/sources/lldp.hpp. As a source: a saved /etc/sennit/lldp.json, else lldpctl
// itself where it is installed, its daemon runs, and we may ask it. lldpctl writes a list of one as
// the thing itself ("json") or everything as a list ("json0"), a name as a key or as a member; all
// of it is read. Cost: linear in the text; live some 10 ms.
#include "topology/sources/lldp.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include <fmt/core.h>

#include "topology/fabric/inside.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"
#include "topology/text/json_tree.hpp"
#include "topology/text/read_file.hpp"
#include "topology/text/run_program.hpp"

namespace sennit {
namespace {

constexpr size_t kMaxNeighbours = 4096;
constexpr size_t kMaxPortBytes = 64;  // room for a device's name behind a host's, or a port's

// The thing itself, or the only item of a list.
const JsonTree* single(const JsonTree* tree) {
  while (tree != nullptr && tree->kind == JsonKind::list && tree->items.size() == 1)
    tree = &tree->items[0];
  return tree;
}

// "text", or {"type": ..., "value": "text"}.
const JsonTree* value_of(const JsonTree* tree) {
  tree = single(tree);
  if (tree != nullptr && tree->kind == JsonKind::map) tree = single(tree->find("value"));
  return tree != nullptr && tree->kind == JsonKind::string ? tree : nullptr;
}

bool usable(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes - kMaxPortBytes &&
         std::all_of(name.begin(), name.end(), is_plain);
}

// "100GbaseCR4 - ...", "10GigBaseLR", "1000BaseTFD - ...": bytes/s; 0: no such.
uint64_t negotiated_rate(std::string_view text) {
  uint64_t number = 0;
  const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || number == 0 || number > 100'000) return 0;
  std::string_view unit = text.substr(static_cast<size_t>(stop - text.data()));
  const bool giga = unit.substr(0, 1) == "G";
  if (giga) unit.remove_prefix(unit.substr(0, 3) == "Gig" ? 3 : 1);
  if (unit.substr(0, 4) != "base" && unit.substr(0, 4) != "Base") return 0;
  return number * (giga ? kGbit : kMbit);
}

struct Neighbour {
  std::string port, name;  // of our NIC, of the switch
  uint64_t rate = 0;
};

class LldpReader {
 public:
  explicit LldpReader(const std::string& file) : file_(file) {}

  Status read(const JsonTree& root) {
    const JsonTree* const lldp = single(root.find("lldp"));
    if (lldp == nullptr) return error(root, "{\"lldp\": ...}, as lldpctl -f json writes it");
    if (lldp->kind != JsonKind::map)
      return lldp->items.empty() ? Status() : error(*lldp, "a map of interfaces");
    const JsonTree* const interfaces = lldp->find("interface");
    return interfaces != nullptr ? read_interfaces(*interfaces) : Status();
  }
  std::vector<Neighbour> take() { return std::move(found_); }

 private:
  Status error(const JsonTree& at, std::string_view expected) const {
    return error_at(file_, at.place(), expected);
  }

  // {"eth0": {...}}, [{"eth0": {...}}, ...] or [{"name": "eth0", ...}, ...]
  Status read_interfaces(const JsonTree& tree) {
    if (tree.kind == JsonKind::list) {
      for (const JsonTree& item : tree.items) {
        if (item.kind != JsonKind::map) return error(item, "a map of an interface");
        SENNIT_RETURN_IF_ERROR(read_interfaces(item));
      }
      return {};
    }
    if (tree.kind != JsonKind::map) return error(tree, "a map or a list of interfaces");
    if (const JsonTree* const name = value_of(tree.find("name")))
      return read_interface(name->text, *name, tree);
    for (size_t i = 0; i < tree.items.size(); i++)
      SENNIT_RETURN_IF_ERROR(read_interface(tree.keys[i].first, tree.items[i], tree.items[i]));
    return {};
  }

  Status read_interface(const std::string& port, const JsonTree& at, const JsonTree& tree) {
    if (!usable(port)) return error(at, "the name of an interface before this");
    const JsonTree* interface = single(&tree);
    // Several neighbours at one port: a hub, or a switch that passes all on.
    if (interface->kind == JsonKind::list) {
      for (const JsonTree& one : interface->items)
        SENNIT_RETURN_IF_ERROR(read_interface(port, one, one));
      return {};
    }
    if (interface->kind != JsonKind::map)
      return error(*interface, "a map of what is known of the neighbour");
    const JsonTree* const chassis = single(interface->find("chassis"));
    if (chassis == nullptr || chassis->kind != JsonKind::map)
      return error(chassis != nullptr ? *chassis : *interface,
                   "a \"chassis\" with what the neighbour says of itself");
    if (found_.size() >= kMaxNeighbours)
      return error(*interface, fmt::format("at most {} neighbours", kMaxNeighbours));
    Neighbour neighbour;
    neighbour.port = port;
    if (const JsonTree* const link = single(interface->find("port")); link != nullptr)
      if (const JsonTree* const negotiation = single(link->find("auto-negotiation"));
          negotiation != nullptr)
        if (const JsonTree* const current = value_of(negotiation->find("current"));
            current != nullptr)
          neighbour.rate = negotiated_rate(current->text);
    SENNIT_RETURN_IF_ERROR(read_chassis(*chassis, &neighbour));
    if (!neighbour.name.empty()) found_.push_back(std::move(neighbour));
    return {};
  }

  // {"NAME": {...}}, or {"name": ..., "id": ..., ...}. The name stays empty where it is no switch.
  Status read_chassis(const JsonTree& tree, Neighbour* neighbour) const {
    const JsonTree* chassis = &tree;
    const JsonTree* name = value_of(tree.find("name"));
    std::string text = name != nullptr ? name->text : "";
    if (name == nullptr && tree.find("id") == nullptr && tree.items.size() == 1 &&
        tree.items[0].kind == JsonKind::map) {
      text = tree.keys[0].first;
      chassis = &tree.items[0];
    }
    if (is_host(*chassis)) return {};
    for (const char* key : {"mgmt-ip", "id"}) {
      if (!text.empty()) break;
      const JsonTree* other = chassis->find(key);
      if (other != nullptr && other->kind == JsonKind::list && !other->items.empty())
        other = &other->items[0];
      if (const JsonTree* const value = value_of(other); value != nullptr) text = value->text;
    }
    if (!usable(text))
      return error(tree, "a neighbour with a printable name, management address or id");
    neighbour->name = text;
    return {};
  }

  // It says what it can, and neither bridging nor routing is switched on.
  static bool is_host(const JsonTree& chassis) {
    const JsonTree* const capabilities = chassis.find("capability");
    if (capabilities == nullptr) return false;
    const auto enabled = [](const JsonTree& one) {
      const JsonTree* const type = single(one.find("type"));
      const JsonTree* const on = single(one.find("enabled"));
      return type != nullptr && on != nullptr &&
             (type->text == "Bridge" || type->text == "Router") && on->text == "true";
    };
    if (capabilities->kind != JsonKind::list) return !enabled(*capabilities);
    return std::none_of(capabilities->items.begin(), capabilities->items.end(), enabled);
  }

  const std::string& file_;
  std::vector<Neighbour> found_;
};

int vertex(Fabric* fabric, VertexKind kind, const std::string& name, int host) {
  const int known = fabric->find(name);
  if (known >= 0) return known;
  fabric->vertices.push_back({kind, name, "", host});
  return static_cast<int>(fabric->vertices.size()) - 1;
}

Fabric to_fabric(const std::vector<Neighbour>& neighbours, const std::string& host) {
  Fabric fabric;
  if (neighbours.empty()) return fabric;
  fabric.vertices.push_back({VertexKind::host, host, "", -1});
  uint64_t fastest = 0;
  for (const Neighbour& one : neighbours) fastest = std::max(fastest, one.rate);
  std::set<std::pair<int, int>> linked;
  for (const Neighbour& one : neighbours) {
    if (one.rate != 0 && one.rate < fastest / 10) {
      fabric.conflicts.push_back(
          fmt::format("{}: port {} to {} is left out: at {} it is less than a tenth of the "
                      "fastest, and taken for a "
                      "management network's",
                      host, one.port, one.name, format_rate(one.rate)));
      continue;
    }
    Link link;
    link.from = vertex(&fabric, VertexKind::nic, fmt::format("{}/{}", host, one.port), 0);
    link.to = vertex(&fabric, VertexKind::switch_, one.name, -1);
    link.capacity = {one.rate, one.rate == 0 ? Provenance::unknown : Provenance::declared};
    link.wire = Wire::ethernet;
    // A switch that is called like the host, or a neighbour that is heard twice.
    if (fabric.vertices[static_cast<size_t>(link.to)].kind != VertexKind::switch_ ||
        !linked.emplace(link.from, link.to).second)
      continue;
    fabric.links.push_back(link);
    std::swap(link.from, link.to);
    fabric.links.push_back(link);
  }
  return fabric;
}

bool is_lldp(std::string_view text) {
  const size_t brace = text.find_first_not_of(" \t\r\n");
  if (brace == std::string_view::npos || text[brace] != '{') return false;
  const size_t key = text.find_first_not_of(" \t\r\n", brace + 1);
  return key != std::string_view::npos && text.substr(key, 6) == "\"lldp\"";
}

// Of this host: NICs by the names that the other sources have for them.
Result<std::optional<Fabric>> said(std::string_view text, const std::string& file,
                                   const std::string& host) {
  Result<Fabric> fabric = parse_lldp(text, file, host);
  if (!fabric) return fabric.status();
  for (Vertex& nic : fabric->vertices) {
    if (nic.kind != VertexKind::nic) continue;
    const std::string name =
        fmt::format("{}/{}", host, nic_name_from_sysfs("/sys", nic.name.substr(host.size() + 1)));
    if (fabric->find(name) < 0) nic.name = name;
  }
  if (fabric->vertices.empty()) return std::optional<Fabric>();
  return std::optional<Fabric>(*std::move(fabric));
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  constexpr const char* kSaved = "/etc/sennit/lldp.json";
  if (file_exists(kSaved)) {
    const Result<std::string> text = read_file(kSaved);
    return text ? said(*text, kSaved, context.host) : text.status();
  }
  const std::optional<ProgramOutput> output = run_program({"lldpctl", "-f", "json"}, 2'000);
  if (!output) return std::optional<Fabric>();  // not installed
  if (output->exit_code == 0) return said(output->out, "lldpctl", context.host);
  // no daemon
  if (output->error.find("No such file") != std::string::npos ||
      output->error.find("Connection refused") != std::string::npos)
    return std::optional<Fabric>();
  return Status(
      SENNIT_UNSUPPORTED,
      fmt::format(
          "lldpctl -f json: {}; let this user ask lldpd (its socket's group), or save what root "
          "gets from that command as {}",
          output->error.empty() ? fmt::format("exit code {}", output->exit_code)
                                : output->error.substr(0, output->error.find('\n')),
          kSaved));
}

}  // namespace

Result<Fabric> parse_lldp(std::string_view text, const std::string& file, const std::string& host) {
  const Result<JsonTree> tree = parse_json_tree(text, file);
  if (!tree) return tree.status();
  LldpReader reader(file);
  SENNIT_RETURN_IF_ERROR(reader.read(*tree));
  return to_fabric(reader.take(), host);
}

SENNIT_SOURCE_ENTRY(lldp, 50, true, read)
SENNIT_TEXT_FORM_ENTRY(lldp, is_lldp, parse_lldp)

}  // namespace sennit
