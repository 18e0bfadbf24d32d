// hwloc.cpp: the inside of a host as a source; see topology/sources/hwloc.hpp. hwloc takes some 10
// ms and memory for every core of the machine, which is why one rank per host is asked and shares
// what it finds.
#include "topology/sources/hwloc.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include <fmt/core.h>

#include "base/process/forked.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_nic(hwloc_obj_t device) {
  return device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
         device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
}

// In a network namespace of its own a process may still see the whole machine's sysfs. An interface
// there that is not the one of that name here, by its address, is out of reach.
bool is_elsewhere(const std::string& device) {
  const std::string address = first_line("/sys/class/net/" + device + "/address");
  if (address.empty() || device.size() >= IFNAMSIZ) return false;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  const bool found = fd >= 0 && ioctl(fd, SIOCGIFHWADDR, &request) == 0;
  if (fd >= 0) close(fd);
  std::string here;
  for (int i = 0; i < 6; i++)
    here += fmt::format("{}{:02x}", i == 0 ? "" : ":",
                        static_cast<uint8_t>(request.ifr_hwaddr.sa_data[i]));
  // An InfiniBand interface's address is longer than the kernel tells here.
  return !found || address.substr(0, here.size()) != here;
}

// The one NUMA node that a device is near; -1 where it is near several.
int numa_of(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t holder = hwloc_get_non_io_ancestor_obj(topology, device);
  if (holder == nullptr || holder->nodeset == nullptr || hwloc_bitmap_weight(holder->nodeset) != 1)
    return -1;
  return hwloc_bitmap_first(holder->nodeset);
}

void add_link(Fabric* fabric, int a, int b, uint64_t rate) {
  Link link;
  link.from = a;
  link.to = b;
  link.capacity = {rate, rate == 0 ? Provenance::unknown : Provenance::declared};
  fabric->links.push_back(link);
  std::swap(link.from, link.to);
  fabric->links.push_back(link);
}

// A PCI device has several names: its verbs device's is kept, and the highest of their rates.
struct Port {
  std::string name;
  bool verbs = false;
  int numa = -1;
  uint64_t rate = 0;
};

// hwloc opens its plug-ins for the first topology and closes them with the last. So one is kept: in
// a forked child glibc's dlclose() waits for ever for a thread that got the stack of a parent's
// that was just looking up a symbol.
void keep_plugins() {
  [[maybe_unused]] static hwloc_topology_t kept = [] {
    hwloc_topology_t topology = nullptr;
    hwloc_topology_init(&topology);
    return topology;
  }();
}

// hwloc takes every refusal for a mask that is too small, and asks with larger ones for ever.
Status may_ask_for_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0 || errno == EINVAL) return {};
  return {SENNIT_UNSUPPORTED,
          fmt::format("hwloc is not asked, since this process may not ask for its cores "
                      "(sched_getaffinity: {}); allow it that system call",
                      std::strerror(errno))};
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  SENNIT_RETURN_IF_ERROR(may_ask_for_cores());
  const ForeignCall call;
  keep_plugins();
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return std::optional<Fabric>();
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // These start drivers or talk to a display and say nothing about NICs, and libpciaccess leaks
  // what sysfs says as well. One that is not there is no error.
  for (const char* component : {"opencl", "gl", "cuda", "nvml", "rsmi", "levelzero", "pci"})
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  std::optional<Fabric> fabric;
  if (hwloc_topology_load(topology) == 0)
    fabric = fabric_from_hwloc(topology, context.host, [](const std::string& device) {
      return is_elsewhere(device) ? 0 : line_rate_from_sysfs("/sys", device);
    });
  hwloc_topology_destroy(topology);
  return fabric;
}

}  // namespace

Fabric fabric_from_hwloc(hwloc_topology_t topology, const std::string& host,
                         const LineRate& line_rate) {
  Fabric fabric;
  fabric.vertices.push_back({VertexKind::host, host, "", -1});
  std::map<int, int> numa_nodes;  // the system's number -> vertex
  const int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < nodes && nodes > 1; i++) {
    const auto node = static_cast<int>(
        hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i))->os_index);
    numa_nodes[node] = static_cast<int>(fabric.vertices.size());
    fabric.vertices.push_back({VertexKind::numa, fmt::format("{}/numa{}", host, node), "", 0});
  }

  std::vector<Port> ports;
  std::map<hwloc_obj_t, size_t> port_of_pci;
  for (hwloc_obj_t device = hwloc_get_next_osdev(topology, nullptr); device != nullptr;
       device = hwloc_get_next_osdev(topology, device)) {
    const hwloc_obj_t pci = device->parent;
    if (!is_nic(device) || pci == nullptr || pci->type != HWLOC_OBJ_PCI_DEVICE) continue;
    if (port_of_pci.emplace(pci, ports.size()).second) ports.emplace_back();
    Port& port = ports[port_of_pci.at(pci)];
    const bool verbs = device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
    if (port.name.empty() || (verbs && !port.verbs)) port.name = device->name;
    port.verbs = port.verbs || verbs;
    port.numa = numa_of(topology, device);
    port.rate = std::max(port.rate, line_rate(device->name));
  }
  for (const Port& port : ports) {
    const int nic = static_cast<int>(fabric.vertices.size());
    fabric.vertices.push_back({VertexKind::nic, fmt::format("{}/{}", host, port.name), "", 0});
    const auto near = numa_nodes.find(port.numa);
    add_link(&fabric, near != numa_nodes.end() ? near->second : 0, nic, port.rate);
  }
  return fabric;
}

uint64_t line_rate_from_sysfs(const std::string& root, const std::string& device) {
  // "200 Gb/sec (4X HDR)". Without a link it is what the port begins with.
  const std::string port = root + "/class/infiniband/" + device + "/ports/1/";
  const std::string state = first_line(port + "state");
  if (state.ends_with("DOWN") || state.ends_with("NOP")) return 0;
  const std::string verbs = first_line(port + "rate");
  char* end = nullptr;
  const double gbit = std::strtod(verbs.c_str(), &end);
  constexpr double kMostGbit = 1e6;
  if (gbit > 0 && gbit < kMostGbit && std::string_view(end).starts_with(" Gb/sec"))
    return static_cast<uint64_t>(gbit * static_cast<double>(kGbit));
  // Mbit/s; -1 where the link is down or the driver cannot tell. Only what has a device behind it
  // is real.
  if (!std::ifstream(root + "/class/net/" + device + "/device/uevent")) return 0;
  const long mbit =
      std::strtol(first_line(root + "/class/net/" + device + "/speed").c_str(), nullptr, 10);
  return mbit > 0 && mbit < kMostMbit ? static_cast<uint64_t>(mbit) * kMbit : 0;
}

SENNIT_SOURCE_ENTRY(hwloc, 30, true, read)

}  // namespace sennit
