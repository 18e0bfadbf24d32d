// link.cpp: see command/emulate/faults/link.hpp.
#include "command/emulate/faults/link.hpp"

#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/core.h>

namespace sennit::emulate {
namespace {

constexpr double kNsPerS = 1e9, kNsPerUs = 1e3, kBitsPerByte = 8;
constexpr uint32_t kMillion = 1'000'000;
// netem's room is counted in packets, and an Ethernet frame carries this much.
constexpr double kPacketBytes = 1500;

// "h0 to h3", or "h0" alone.
std::string span(const std::string& first, const std::string& last) {
  return first == last ? first : first + " to " + last;
}

template <typename Named>
std::string names(const std::vector<Named>& list) {
  return span(list.front().name, list.back().name);
}

std::string names_of_links(const Tree& tree) {
  std::string text = names(tree.hosts);
  if (tree.has_spine()) text += ", " + names(tree.racks);
  if (!tree.pods.empty()) text += ", " + names(tree.pods);
  if (tree.rails == 1) return text;
  const auto on_one = [&](const auto& name_on) {
    return span(name_on(0), name_on(tree.rails - 1));
  };
  return fmt::format(
      "{}; on one rail {}, {}", text,
      on_one([&](int rail) { return nic_name(tree, tree.hosts.front(), rail); }),
      on_one([&](int rail) { return on_rail(tree, tree.racks.front().name, rail); }));
}

// What a caller asks for: NAME on all rails, or on one.
struct Asked {
  std::string name;
  std::optional<int> rail = std::nullopt;
  bool by_interface = false;  // which hosts alone have
};

// Of h0/eth1, h0.1 and rack0.1. None of the tree's own names has a full stop or a slash.
Asked parse_name(const std::string& text) {
  for (const std::string_view separator : {"/eth", "."}) {
    const size_t at = text.find(separator);
    if (at == std::string::npos) continue;
    const char* const end = text.data() + text.size();
    int rail = -1;
    const auto [stop, error] = std::from_chars(text.data() + at + separator.size(), end, rail);
    if (error == std::errc() && stop == end && rail >= 0)
      return {text.substr(0, at), rail, separator != "."};
  }
  return {text};
}

// `name` is for people, `rule` for nft.
TreeLink make_link(const std::string& name, const std::string& rule, uint64_t bits_per_s,
                   LinkFaults* faults, const LinkEnd& lower, const LinkEnd& upper) {
  return {.name = name,
          .bits_per_s = bits_per_s,
          .faults = faults,
          .out = {rule + "_out", bits_per_s, &faults->out, lower, upper},
          .in = {rule + "_in", bits_per_s, &faults->in, upper, lower}};
}

// Packets that netem may hold: what is on its way for the delay, and what may wait for the link.
uint64_t netem_packets(uint64_t bits_per_s, uint64_t delay_ns) {
  const double on_the_way =
      static_cast<double>(bits_per_s) / kBitsPerByte * static_cast<double>(delay_ns) / kNsPerS;
  constexpr double kQueueBytes = kQueueMiB * 1024.0 * 1024.0;
  return static_cast<uint64_t>((on_the_way + kQueueBytes) / kPacketBytes) + 1;
}

// The statement that drops packets; empty: none.
std::string drop_statement(const Fault& fault) {
  if (fault.cut || fault.lost_ppm >= kMillion) return "counter drop";
  if (fault.lost_ppm == 0) return "";
  return fmt::format("numgen random mod {} < {} counter drop", kMillion, fault.lost_ppm);
}

// Half of all packets, for a trial.
constexpr const char* kDropHalf = "numgen random mod 2 < 1 counter drop";

// An nft table of one rule, for what arrives at a device.
std::string table(const std::string& name, const std::string& device, const std::string& rule) {
  return fmt::format(
      "table netdev {} {{\n  chain arriving {{\n"
      "    type filter hook ingress device \"{}\" priority 0; policy accept;\n"
      "    {}\n  }}\n}}\n",
      name, device, rule);
}

TreeLink link_of(Instance* instance, Host* host, int rail) {
  const std::string rule = on_rail(instance->tree, host->name, rail);
  return make_link(nic_name(instance->tree, *host, rail), rule, host->nic_bits_per_s,
                   &host->nics[static_cast<size_t>(rail)].faults,
                   {host->holder, interface_of(rail)}, {instance->keeper, "port-" + rule});
}

TreeLink link_of(Instance* instance, Switch* lower, int rail) {
  const std::string name = on_rail(instance->tree, lower->name, rail);
  return make_link(name, name, lower->uplink_bits_per_s, &lower->faults[static_cast<size_t>(rail)],
                   {instance->keeper, "up-" + name}, {instance->keeper, "down-" + name});
}

// Of a host or a switch: its links on all rails, or the one that is asked for.
template <typename Lower>
Result<std::vector<TreeLink>> on_rails(Instance* instance, Lower* lower, const Asked& asked,
                                       const std::string& typed) {
  const Tree& tree = instance->tree;
  if (asked.rail && *asked.rail >= tree.rails) {
    const std::string first = link_of(instance, lower, 0).name;
    return invalid(fmt::format("{}: there is no rail {} in '{}'; on its rails {} has {}", typed,
                               *asked.rail, instance->name, lower->name,
                               span(first, link_of(instance, lower, tree.rails - 1).name)));
  }
  std::vector<TreeLink> links;
  for (int rail = 0; rail < tree.rails; rail++)
    if (!asked.rail || *asked.rail == rail) links.push_back(link_of(instance, lower, rail));
  return links;
}

}  // namespace

Result<std::vector<TreeLink>> find_links(Instance* instance, const std::string& name) {
  Tree& tree = instance->tree;
  const Asked asked = parse_name(name);
  for (Host& host : tree.hosts)
    if (host.name == asked.name) return on_rails(instance, &host, asked, name);
  bool at_the_top = name == "spine" && tree.has_spine();
  for (std::vector<Switch>* switches : {&tree.racks, &tree.pods})
    for (Switch& from : *switches) {
      if (from.name != asked.name || asked.by_interface) continue;
      if (from.uplink_bits_per_s) return on_rails(instance, &from, asked, name);
      at_the_top = true;
    }
  return invalid(fmt::format("{}: {} in '{}'; its links are called by their lower ends: {}", name,
                             at_the_top ? "is the top of the tree, and no link goes up from it"
                                        : "there is no such host or switch",
                             instance->name, names_of_links(tree)));
}

std::string shaping(const LinkDirection& direction, const Fault& before, const Fault& after) {
  if (before.bits_per_s == after.bits_per_s && before.delay_ns == after.delay_ns) return "";
  const std::string& device = direction.sender.device;
  const uint64_t bits_per_s = after.bits_per_s ? after.bits_per_s : direction.bits_per_s;
  std::string text;
  // A bucket from which netem is taken has no queue at all and drops everything, so both are made
  // anew, and what waits there is lost.
  if (before.delay_ns && !after.delay_ns) text += fmt::format("qdisc del dev {} root\n", device);
  text += shape(device, bits_per_s);
  if (after.delay_ns)
    text += fmt::format("qdisc replace dev {} parent {}1 handle 2: netem delay {}us limit {}\n",
                        device, kShaper, static_cast<double>(after.delay_ns) / kNsPerUs,
                        netem_packets(bits_per_s, after.delay_ns));
  return text;
}

std::string dropping(const LinkDirection& direction, const Fault& before, const Fault& after) {
  const std::string drop = drop_statement(after);
  if (drop == drop_statement(before)) return "";
  const std::string name = "fault_" + direction.name;
  // Adding it first lets the deletion go well also where there is none.
  const std::string none = fmt::format("add table netdev {0}\ndelete table netdev {0}\n", name);
  return drop.empty() ? none : none + table(name, direction.receiver.device, drop);
}

Status check_support(pid_t switches, const Fault& fault) {
  if (!drop_statement(fault).empty()) {
    // Only checked (-c), by nft and by the kernel.
    const Status checked =
        run_in(switches, {"nft", "-c", "-f", "-"}, table("trial", "lo", kDropHalf));
    if (!checked.ok())
      return {checked.kind(),
              "losing packets takes nft, and CONFIG_NF_TABLES_NETDEV and CONFIG_NFT_NUMGEN in this "
              "machine's kernel. " +
                  checked.text()};
  }
  if (fault.delay_ns == 0) return {};
  // Tried on a device that nothing uses.
  const Status tried = run_in(switches, {"tc", "-batch", "-"},
                              "qdisc add dev lo root netem delay 1us\nqdisc del dev lo root\n");
  if (tried.ok()) return {};
  return {tried.kind(),
          "a delay takes netem: CONFIG_NET_SCH_NETEM in this machine's kernel, or its module "
          "sch_netem. " +
              tried.text()};
}

Status enforce(const LinkDirection& direction, const Fault& before, const Fault& after) {
  if (const std::string text = shaping(direction, before, after); !text.empty())
    SENNIT_RETURN_IF_ERROR(run_in(direction.sender.process, {"tc", "-batch", "-"}, text));
  if (const std::string text = dropping(direction, before, after); !text.empty())
    SENNIT_RETURN_IF_ERROR(run_in(direction.receiver.process, {"nft", "-f", "-"}, text));
  return {};
}

}  // namespace sennit::emulate
