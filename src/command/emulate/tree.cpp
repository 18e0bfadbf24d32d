// The emulated tree: from command-line options to racks, hosts, rates and rank order, and out again
// as fabric file and as Slurm's topology variables. Pure functions, no system calls.
#include <algorithm>
#include <charconv>
#include <numeric>
#include <random>
#include <tuple>

#include <fmt/format.h>

#include "command/emulate/emulate.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::emulate {
namespace {

constexpr uint64_t kLeastBytesPerS = 10'000, kMostBytesPerS = 100'000'000'000;
// each costs kernel memory and time, and one machine carries them all
constexpr int kMostHosts = 1000;
constexpr int kMostRanksPerHost = 4096;  // as sennit plan has it
// What all hosts together may send.
constexpr uint64_t kMostUplinkBytesPerS = kMostHosts * kMostBytesPerS;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

template <typename Number>
Result<std::vector<Number>> parse_numbers(const std::string& option, const std::string& text) {
  std::vector<Number> numbers;
  for (const std::string& part : split(text, ',')) {
    Number number{};
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || !(number > 0))
      return invalid(fmt::format("{} {}: '{}' is not a number above 0", option, text, part));
    numbers.push_back(number);
  }
  return numbers;
}

// One rate for all `count`, or a list of exactly that many.
Result<std::vector<uint64_t>> parse_rates(const std::string& option, const std::string& text,
                                          size_t count) {
  std::vector<uint64_t> rates;
  for (const std::string& part : split(text, ',')) {
    const std::optional<uint64_t> bits_per_s = link_rate(part);
    if (!bits_per_s)
      return invalid(
          fmt::format("{} {}: expected a rate such as 400Mbit/s, 1Gbit/s or 50MB/s, got '{}'",
                      option, text, part));
    rates.push_back(*bits_per_s);
  }
  if (rates.size() == 1) rates.assign(count, rates[0]);
  if (rates.size() != count)
    return invalid(
        fmt::format("{} {}: expected one rate or {}, got {}", option, text, count, rates.size()));
  return rates;
}

// Racks of each pod.
Result<std::vector<int>> parse_pods(const std::string& text, int racks) {
  Result<std::vector<int>> parsed = parse_numbers<int>("--pods", text);
  if (!parsed) return parsed.status();
  if (text.find(',') == std::string::npos) {
    const int pods = (*parsed)[0];
    if (pods > racks)
      return invalid(fmt::format("--pods {}: there are only {} racks", pods, racks));
    std::vector<int> sizes;
    sizes.reserve(static_cast<size_t>(pods));
    for (int pod = 0; pod < pods; pod++)
      sizes.push_back(racks * (pod + 1) / pods - racks * pod / pods);
    return sizes;
  }
  if (std::accumulate(parsed->begin(), parsed->end(), int64_t{0}) != racks)
    return invalid(
        fmt::format("--pods {}: the racks of the pods do not add up to {}", text, racks));
  return parsed;
}

// What a rack or a pod has left of the rates below it. Rates are whole numbers of bytes/s, as in
// the fabric file; one of less than a link can have would be no link at all.
Result<uint64_t> uplink_rate(double below_bits_per_s, double ratio, const std::string& name,
                             const TreeOptions& options) {
  const double bytes_per_s = below_bits_per_s / ratio / 8;
  if (bytes_per_s >= static_cast<double>(kLeastBytesPerS) &&
      bytes_per_s <= static_cast<double>(kMostUplinkBytesPerS))
    return static_cast<uint64_t>(bytes_per_s) * 8;
  return invalid(
      fmt::format("--oversubscription {}: the uplink of {} would have {:.3g} bit/s, and it takes "
                  "from {} to {}",
                  options.oversubscription, name, bytes_per_s * 8, kLeastBytesPerS * 8,
                  kMostUplinkBytesPerS * 8));
}

Status check_rails(int rails, int64_t hosts) {
  if (rails < 1 || rails > kMostRails)
    return invalid(fmt::format("--rails {}: a host has from 1 to {} NICs", rails, kMostRails));
  if (hosts * rails > kMostHosts)
    return invalid(fmt::format(
        "--rails {}: {} NICs for {} hosts, and one machine carries at most {}; take fewer hosts or "
        "rails",
        rails, hosts * rails, hosts, kMostHosts));
  return {};
}

Status set_rates(const TreeOptions& options, Tree* tree) {
  const Result<std::vector<uint64_t>> nic = parse_rates("--nic", options.nic, tree->hosts.size());
  if (!nic) return nic.status();
  std::vector<double> rack_load(tree->racks.size()), pod_load(tree->pods.size());
  for (size_t h = 0; h < tree->hosts.size(); h++) {
    tree->hosts[h].nic_bits_per_s = (*nic)[h];
    rack_load[static_cast<size_t>(tree->hosts[h].rack)] += static_cast<double>((*nic)[h]);
  }
  std::vector<double> ratios = {1, 1};
  if (!options.oversubscription.empty()) {
    Result<std::vector<double>> parsed =
        parse_numbers<double>("--oversubscription", options.oversubscription);
    if (!parsed) return parsed.status();
    if (parsed->size() > 2)
      return invalid(fmt::format("--oversubscription {}: expected RACK or RACK,POD",
                                 options.oversubscription));
    std::copy(parsed->begin(), parsed->end(), ratios.begin());
  }
  std::vector<uint64_t> uplinks, pod_uplinks;
  if (!options.uplink.empty()) {
    Result<std::vector<uint64_t>> rates =
        parse_rates("--uplink", options.uplink, tree->racks.size());
    if (!rates) return rates.status();
    uplinks = *rates;
  }
  if (!options.pod_uplink.empty()) {
    if (tree->pods.empty()) return invalid("--pod-uplink needs --pods");
    Result<std::vector<uint64_t>> rates =
        parse_rates("--pod-uplink", options.pod_uplink, tree->pods.size());
    if (!rates) return rates.status();
    pod_uplinks = *rates;
  }
  if (!tree->has_spine()) return {};  // the rack is the root
  const auto set_uplink = [&](Switch* of, const std::vector<uint64_t>& given, size_t number,
                              double load, double ratio) -> Status {
    const Result<uint64_t> rate =
        given.empty() ? uplink_rate(load, ratio, of->name, options) : given[number];
    if (rate) of->uplink_bits_per_s = *rate;
    return rate.status();
  };
  for (size_t r = 0; r < tree->racks.size(); r++) {
    Switch& rack = tree->racks[r];
    SENNIT_RETURN_IF_ERROR(set_uplink(&rack, uplinks, r, rack_load[r], ratios[0]));
    if (!tree->pods.empty())
      pod_load[static_cast<size_t>(rack.pod)] += static_cast<double>(rack.uplink_bits_per_s);
  }
  for (size_t p = 0; p < tree->pods.size(); p++)
    SENNIT_RETURN_IF_ERROR(set_uplink(&tree->pods[p], pod_uplinks, p, pod_load[p], ratios[1]));
  return {};
}

}  // namespace

std::string readable_rate(uint64_t bits_per_s) {
  const double rate = static_cast<double>(bits_per_s);
  return rate >= 1e9 ? fmt::format("{:.4g} Gbit/s", rate / 1e9)
                     : fmt::format("{:.4g} Mbit/s", rate / 1e6);
}

std::optional<uint64_t> link_rate(const std::string& text) {
  const std::optional<uint64_t> bytes_per_s = parse_rate(text);
  if (!bytes_per_s || *bytes_per_s < kLeastBytesPerS || *bytes_per_s > kMostBytesPerS)
    return std::nullopt;
  return *bytes_per_s * 8;
}

Result<Tree> make_tree(const TreeOptions& options) {
  const Result<std::vector<int>> racks = parse_numbers<int>("--racks", options.racks);
  if (!racks) return racks.status();
  std::vector<int> hosts_of_rack = *racks;
  if (options.racks.find(',') == std::string::npos) {
    if (options.hosts < 1)
      return invalid(fmt::format("--hosts {}: expected at least 1", options.hosts));
    if ((*racks)[0] > kMostHosts)
      return invalid(fmt::format("--racks {}: too many", options.racks));
    hosts_of_rack.assign(static_cast<size_t>((*racks)[0]), options.hosts);
  }
  const int64_t hosts = std::accumulate(hosts_of_rack.begin(), hosts_of_rack.end(), int64_t{0});
  if (hosts > kMostHosts)
    return invalid(fmt::format("--racks {}: more than {} hosts", options.racks, kMostHosts));
  SENNIT_RETURN_IF_ERROR(check_rails(options.rails, hosts));
  const auto rails = static_cast<size_t>(options.rails);
  Tree tree;
  tree.rails = options.rails;
  for (size_t r = 0; r < hosts_of_rack.size(); r++) {
    tree.racks.push_back(
        {.name = fmt::format("rack{}", r), .faults = std::vector<LinkFaults>(rails)});
    for (int h = 0; h < hosts_of_rack[r]; h++)
      tree.hosts.push_back({.name = fmt::format("h{}", tree.hosts.size()),
                            .rack = static_cast<int>(r),
                            .nics = std::vector<Nic>(rails)});
  }
  if (!options.pods.empty()) {
    const Result<std::vector<int>> pods =
        parse_pods(options.pods, static_cast<int>(tree.racks.size()));
    if (!pods) return pods.status();
    size_t rack = 0;
    if (pods->size() > 1)  // a single pod is the root
      for (size_t p = 0; p < pods->size(); p++) {
        tree.pods.push_back(
            {.name = fmt::format("pod{}", p), .faults = std::vector<LinkFaults>(rails)});
        for (int i = 0; i < (*pods)[p]; i++) tree.racks[rack++].pod = static_cast<int>(p);
      }
  }
  SENNIT_RETURN_IF_ERROR(set_rates(options, &tree));
  return tree;
}

std::string describe(const Tree& tree) {
  std::vector<int> hosts_of_rack(tree.racks.size());
  for (const Host& host : tree.hosts) hosts_of_rack[static_cast<size_t>(host.rack)]++;
  const auto rates = [](const auto& list, auto member) {
    const bool same = std::all_of(list.begin(), list.end(),
                                  [&](const auto& x) { return x.*member == list[0].*member; });
    if (same) return readable_rate(list[0].*member);
    std::vector<std::string> texts;
    texts.reserve(list.size());
    for (const auto& x : list) texts.push_back(readable_rate(x.*member));
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  std::string text;
  if (!tree.pods.empty())
    text += fmt::format("{} pods ({} each way{}), ", tree.pods.size(),
                        rates(tree.pods, &Switch::uplink_bits_per_s),
                        tree.rails == 1 ? "" : " and rail");
  const bool equal = std::adjacent_find(hosts_of_rack.begin(), hosts_of_rack.end(),
                                        std::not_equal_to<>()) == hosts_of_rack.end();
  if (equal)
    text +=
        fmt::format("{} rack{} × {} host{}", tree.racks.size(), tree.racks.size() == 1 ? "" : "s",
                    hosts_of_rack[0], hosts_of_rack[0] == 1 ? "" : "s");
  else
    text += fmt::format("racks of {} hosts", fmt::join(hosts_of_rack, ", "));
  const bool one_rail = tree.rails == 1;
  if (!one_rail) text += fmt::format(", {} rails", tree.rails);
  text += fmt::format(", {} per {}", rates(tree.hosts, &Host::nic_bits_per_s),
                      one_rail ? "host" : "NIC");
  if (tree.has_spine())
    text += fmt::format(", {} per rack uplink{}", rates(tree.racks, &Switch::uplink_bits_per_s),
                        one_rail ? "" : " and rail");
  return text;
}

namespace {

std::string describe(const Fault& fault, uint64_t bits_per_s) {
  std::vector<std::string> parts;
  if (fault.cut) parts.emplace_back("cut");
  if (fault.bits_per_s)
    parts.push_back(fmt::format("slowed to {} of {}", readable_rate(fault.bits_per_s),
                                readable_rate(bits_per_s)));
  if (fault.lost_ppm)
    parts.push_back(fmt::format("losing {}% of its packets", fault.lost_ppm / 1e4));
  if (fault.delay_ns) parts.push_back("delayed by " + format_time(fault.delay_ns));
  return parts.empty() ? "whole" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string describe(const LinkFaults& faults, uint64_t bits_per_s) {
  if (faults == LinkFaults{}) return "whole";
  const std::string out = describe(faults.out, bits_per_s), in = describe(faults.in, bits_per_s);
  return out == in ? "both directions " + out : fmt::format("out {}; in {}", out, in);
}

std::vector<std::string> describe_faults(const Tree& tree) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const LinkFaults& faults, uint64_t bits_per_s) {
    if (faults != LinkFaults{}) lines.push_back(name + ": " + describe(faults, bits_per_s));
  };
  const auto add_switches = [&](const std::vector<Switch>& switches) {
    for (const Switch& from : switches)
      for (size_t rail = 0; rail < from.faults.size(); rail++)
        add(on_rail(tree, from.name, static_cast<int>(rail)), from.faults[rail],
            from.uplink_bits_per_s);
  };
  for (const Host& host : tree.hosts)
    for (size_t rail = 0; rail < host.nics.size(); rail++)
      add(nic_name(tree, host, static_cast<int>(rail)), host.nics[rail].faults,
          host.nic_bits_per_s);
  add_switches(tree.racks);
  add_switches(tree.pods);
  return lines;
}

std::string fabric_text(const Tree& tree) {
  std::string text = "# written by sennit emulate\nfabric \"emulated\"\n";
  const auto link = [&](const std::string& from, const std::string& to, uint64_t rate) {
    text += fmt::format("link {} {} {} burst {}KiB declared\n", from, to, format_rate(rate / 8),
                        kBurstKiB);
  };
  if (tree.has_spine()) text += "switch spine tier root\n";
  for (const Switch& pod : tree.pods)
    for (int rail = 0; rail < tree.rails; rail++) {
      const std::string name = on_rail(tree, pod.name, rail);
      text += fmt::format("switch {} tier pod\n", name);
      link(name, "spine", pod.uplink_bits_per_s);
    }
  for (const Switch& rack : tree.racks)
    for (int rail = 0; rail < tree.rails; rail++) {
      const std::string name = on_rail(tree, rack.name, rail);
      text += fmt::format("switch {} tier rack\n", name);
      if (rack.uplink_bits_per_s) link(name, above_rack(tree, rack, rail), rack.uplink_bits_per_s);
    }
  for (const Host& host : tree.hosts) {
    text += fmt::format("host {}\n", host.name);
    for (int rail = 0; rail < tree.rails; rail++) {
      const std::string nic = nic_name(tree, host, rail);
      if (nic != host.name) text += fmt::format("nic {} host {}\n", nic, host.name);
      link(nic, on_rail(tree, tree.racks[static_cast<size_t>(host.rack)].name, rail),
           host.nic_bits_per_s);
    }
  }
  return text;
}

std::string slurm_address(const Tree& tree, const Host& host) {
  const Switch& rack = tree.racks[static_cast<size_t>(host.rack)];
  std::string text = tree.has_spine() ? "spine." : "";
  if (!tree.pods.empty()) text += tree.pods[static_cast<size_t>(rack.pod)].name + ".";
  return text + rack.name + "." + host.name;
}

std::string slurm_pattern(const Tree& tree) {
  std::string text = tree.has_spine() ? "switch." : "";
  if (!tree.pods.empty()) text += "switch.";
  return text + "switch.node";
}

Result<std::vector<int>> place_ranks(const Tree& tree, int ranks_per_host,
                                     const std::string& order) {
  if (ranks_per_host < 1 || ranks_per_host > kMostRanksPerHost)
    return invalid(fmt::format("--ranks-per-host {}: expected from 1 to {}", ranks_per_host,
                               kMostRanksPerHost));
  struct Slot {
    int host, local, host_in_rack, rack_in_pod, pod;
  };
  std::vector<Slot> slots;
  std::vector<int> hosts_seen(tree.racks.size()), racks_seen(tree.racks.size());
  std::vector<int> racks_of_pod(std::max<size_t>(1, tree.pods.size()));
  for (size_t r = 0; r < tree.racks.size(); r++)
    racks_seen[r] = racks_of_pod[static_cast<size_t>(tree.racks[r].pod)]++;
  for (size_t h = 0; h < tree.hosts.size(); h++) {
    const auto rack = static_cast<size_t>(tree.hosts[h].rack);
    const int host_in_rack = hosts_seen[rack]++;
    for (int local = 0; local < ranks_per_host; local++)
      slots.push_back(
          {static_cast<int>(h), local, host_in_rack, racks_seen[rack], tree.racks[rack].pod});
  }
  if (order == "dealt") {
    std::stable_sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) {
      return std::tie(a.local, a.host_in_rack, a.rack_in_pod, a.pod) <
             std::tie(b.local, b.host_in_rack, b.rack_in_pod, b.pod);
    });
  } else if (order == "random" || order.starts_with("random:")) {
    uint64_t seed = 1;
    if (order.size() > 7) {
      const Result<std::vector<uint64_t>> parsed =
          parse_numbers<uint64_t>("--order random:SEED", order.substr(7));
      if (!parsed) return parsed.status();
      seed = (*parsed)[0];
    }
    std::mt19937_64 random(seed);  // own shuffle: std::shuffle may differ between libraries
    for (size_t i = slots.size(); i > 1; i--) std::swap(slots[i - 1], slots[random() % i]);
  } else if (order != "fabric") {
    return invalid(fmt::format("--order {}: expected fabric, dealt or random[:SEED]", order));
  }
  std::vector<int> hosts;
  hosts.reserve(slots.size());
  for (const Slot& slot : slots) hosts.push_back(slot.host);
  return hosts;
}

}  // namespace sennit::emulate
