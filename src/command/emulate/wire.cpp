// The wire of an emulated tree: a bridge for every switch, a veth pair for every link, and a token
// bucket on the egress of both its ends, so that each direction has the link's rate. Of several
// rails each has such switches and links, but for the common spine. One `ip` and one `tc` process
// for the switches and one each per host, in batch mode.
//
// The bucket is kBurstKiB, the queue before it kQueueMiB.
#include <fmt/core.h>

#include "command/emulate/emulate.hpp"

namespace sennit::emulate {

std::string shape(const std::string& device, uint64_t bits_per_s) {
  return fmt::format("qdisc replace dev {} root handle {} tbf rate {}bit burst {}kb limit {}mb\n",
                     device, kShaper, bits_per_s, kBurstKiB, kQueueMiB);
}

namespace {

// What `ip` and `tc` have to read in the namespace of the switches.
class Switches {
 public:
  explicit Switches(const Tree& tree) : tree_(tree) {
    if (tree.has_spine()) bridge("spine");
    for (int rail = 0; rail < tree.rails; rail++) add_rail(rail);
  }
  const std::string& links() const { return links_; }
  const std::string& shapes() const { return shapes_; }

 private:
  void add_rail(int rail) {
    for (const Switch& pod : tree_.pods) {
      bridge(on_rail(tree_, pod.name, rail));
      uplink(on_rail(tree_, pod.name, rail), "spine", pod.uplink_bits_per_s);
    }
    for (const Switch& rack : tree_.racks) {
      bridge(on_rail(tree_, rack.name, rail));
      if (rack.uplink_bits_per_s)
        uplink(on_rail(tree_, rack.name, rail), above_rack(tree_, rack, rail),
               rack.uplink_bits_per_s);
    }
    for (const Host& host : tree_.hosts) {
      const std::string port = "port-" + on_rail(tree_, host.name, rail);
      links_ += fmt::format(
          "link add {0} type veth peer name {1} netns {2}\nlink set {0} master {3} up\n", port,
          interface_of(rail), host.holder,
          on_rail(tree_, tree_.racks[static_cast<size_t>(host.rack)].name, rail));
      shapes_ += shape(port, host.nic_bits_per_s);
    }
  }
  void bridge(const std::string& name) {
    links_ += fmt::format("link add {0} type bridge\nlink set {0} up\n", name);
  }
  void uplink(const std::string& from, const std::string& to, uint64_t bits_per_s) {
    const std::string up = "up-" + from, down = "down-" + from;
    links_ += fmt::format(
        "link add {0} type veth peer name {1}\nlink set {0} master {2} up\nlink set {1} master {3} "
        "up\n",
        up, down, from, to);
    shapes_ += shape(up, bits_per_s) + shape(down, bits_per_s);
  }

  const Tree& tree_;
  std::string links_, shapes_;
};

// The rails meet at the spine, so a question for one NIC's address reaches the others too: only it
// may answer, and none asks in another's name.
constexpr const char* kOwnAddressesOnly =
    "cd /proc/sys/net/ipv4/conf/all && echo 1 > arp_ignore && echo 2 > arp_announce\n";

Status wire_host(const Tree& tree, const Host& host, int subnet) {
  if (tree.rails > 1) SENNIT_RETURN_IF_ERROR(run_in(host.holder, {"sh", "-s"}, kOwnAddressesOnly));
  SENNIT_RETURN_IF_ERROR(
      run_in(host.holder, {"ip", "-batch", "-"}, addressing(tree, host, subnet)));
  std::string shapes;
  for (int rail = 0; rail < tree.rails; rail++)
    shapes += shape(interface_of(rail), host.nic_bits_per_s);
  return run_in(host.holder, {"tc", "-batch", "-"}, shapes);
}

}  // namespace

Status wire(const Instance& instance) {
  const Tree& tree = instance.tree;
  const Switches switches(tree);
  SENNIT_RETURN_IF_ERROR(run_in(instance.keeper, {"ip", "-batch", "-"}, switches.links()));
  SENNIT_RETURN_IF_ERROR(run_in(instance.keeper, {"tc", "-batch", "-"}, switches.shapes()));
  for (const Host& host : tree.hosts)
    SENNIT_RETURN_IF_ERROR(wire_host(tree, host, instance.subnet));
  return {};
}

}  // namespace sennit::emulate
