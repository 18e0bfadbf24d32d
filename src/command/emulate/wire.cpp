// The wire of an emulated tree: a bridge for every switch, a veth pair for every link, and a token
// bucket on the egress of both its ends, so that each direction has the link's rate. One `ip` and
// one `tc` process for the switches and one each per host, in batch mode.
//
// The bucket is kBurstKiB, the queue before it kQueueMiB.
#include <fmt/core.h>

#include "command/emulate/emulate.hpp"

namespace sennit::emulate {

std::string shape(const std::string& device, uint64_t bits_per_s) {
  return fmt::format("qdisc replace dev {} root handle {} tbf rate {}bit burst {}kb limit {}mb\n",
                     device, kShaper, bits_per_s, kBurstKiB, kQueueMiB);
}

Status wire(const Tree& tree, pid_t switches) {
  std::string links, shapes;
  const auto bridge = [&](const std::string& name) {
    links += fmt::format("link add {} type bridge\nlink set {} up\n", name, name);
  };
  const auto uplink = [&](const Switch& from, const std::string& to) {
    const std::string up = "up-" + from.name, down = "down-" + from.name;
    links += fmt::format(
        "link add {0} type veth peer name {1}\nlink set {0} master {2} up\nlink set {1} master {3} "
        "up\n",
        up, down, from.name, to);
    shapes += shape(up, from.uplink_bits_per_s) + shape(down, from.uplink_bits_per_s);
  };
  if (tree.racks.size() > 1) bridge("spine");
  for (const Switch& pod : tree.pods) {
    bridge(pod.name);
    uplink(pod, "spine");
  }
  for (const Switch& rack : tree.racks) {
    bridge(rack.name);
    if (rack.uplink_bits_per_s)
      uplink(rack, tree.pods.empty() ? "spine" : tree.pods[static_cast<size_t>(rack.pod)].name);
  }
  for (const Host& host : tree.hosts) {
    const std::string port = "port-" + host.name;
    links +=
        fmt::format("link add {0} type veth peer name eth0 netns {1}\nlink set {0} master {2} up\n",
                    port, host.holder, tree.racks[static_cast<size_t>(host.rack)].name);
    shapes += shape(port, host.nic_bits_per_s);
  }
  SENNIT_RETURN_IF_ERROR(run_in(switches, {"ip", "-batch", "-"}, links));
  SENNIT_RETURN_IF_ERROR(run_in(switches, {"tc", "-batch", "-"}, shapes));
  for (const Host& host : tree.hosts) {
    const std::string own =
        fmt::format("link set lo up\naddr add {}/16 dev eth0\nlink set eth0 up\n", host.address);
    SENNIT_RETURN_IF_ERROR(run_in(host.holder, {"ip", "-batch", "-"}, own));
    SENNIT_RETURN_IF_ERROR(
        run_in(host.holder, {"tc", "-batch", "-"}, shape("eth0", host.nic_bits_per_s)));
  }
  return {};
}

}  // namespace sennit::emulate
