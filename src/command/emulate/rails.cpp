// Rails of an emulated tree: what the parts are called that every rail has, and how hosts are
// addressed on them. Each host has a NIC on every rail, and each rail has leaves and pods of its
// own below the common spine. Of one rail, names and addresses are those of a plain tree. Pure
// functions, no system calls.
#include <fmt/core.h>

#include "command/emulate/emulate.hpp"

namespace sennit::emulate {
namespace {

constexpr size_t kHostsPerBlock = 250;  // addresses whose third byte is the same
// Third bytes of a rail: a /20 holds the four blocks of the thousand hosts that there are at most.
constexpr size_t kBlocksPerRail = 16;
constexpr int kRailPrefix = 20, kTreePrefix = 16;
// Beyond those that the kernel and distributions number themselves.
constexpr int kFirstTable = 100;

}  // namespace

std::string interface_of(int rail) { return fmt::format("eth{}", rail); }

std::string on_rail(const Tree& tree, const std::string& name, int rail) {
  return tree.rails == 1 ? name : fmt::format("{}.{}", name, rail);
}

std::string above_rack(const Tree& tree, const Switch& rack, int rail) {
  return tree.pods.empty() ? "spine"
                           : on_rail(tree, tree.pods[static_cast<size_t>(rack.pod)].name, rail);
}

std::string nic_name(const Tree& tree, const Host& host, int rail) {
  return tree.rails == 1 ? host.name : fmt::format("{}/{}", host.name, interface_of(rail));
}

std::string address_of(int subnet, size_t host, int rail) {
  return fmt::format("10.{}.{}.{}", subnet,
                     static_cast<size_t>(rail) * kBlocksPerRail + host / kHostsPerBlock + 1,
                     host % kHostsPerBlock + 1);
}

std::string addressing(const Tree& tree, const Host& host, int subnet) {
  std::string text = "link set lo up\n";
  for (int rail = 0; rail < tree.rails; rail++) {
    const std::string& address = host.nics[static_cast<size_t>(rail)].address;
    text += fmt::format("addr add {0}/{1} dev {2}\nlink set {2} up\n", address,
                        tree.rails == 1 ? kTreePrefix : kRailPrefix, interface_of(rail));
    if (tree.rails == 1) continue;
    // Other rails are reached over the spine.
    text += fmt::format("route add 10.{}.0.0/{} dev {} table {}\nrule add from {} lookup {}\n",
                        subnet, kTreePrefix, interface_of(rail), kFirstTable + rail, address,
                        kFirstTable + rail);
  }
  return text;
}

int rail_of(const Tree& tree, int local_rank) { return local_rank % tree.rails; }

std::vector<int> local_ranks(const Tree& tree, const std::vector<int>& hosts_of_ranks) {
  std::vector<int> seen(tree.hosts.size()), local;
  local.reserve(hosts_of_ranks.size());
  for (const int host : hosts_of_ranks) local.push_back(seen[static_cast<size_t>(host)]++);
  return local;
}

}  // namespace sennit::emulate
