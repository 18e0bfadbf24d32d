// inside.hpp: the devices inside a host as records, from whatever source, and the one function that
// makes a Fabric of them. Pure, but for what says that it reads the kernel's files.
//
// A GPU is HOST/gpuN; a link to the NUMA node that it is near (else the host) is its PCI Express;
// one to the host has the rate of all its NVLinks together, which is all that a rank there can
// send; one to each GPU that NVLink joins it with has the rate of those links. A NIC is HOST/NAME
// with a link to its NUMA node (else the host) at its line rate, or at what its PCI Express slot
// carries where that is less; and one to each GPU below the same PCI switch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// The NVLinks of a GPU to one peer.
struct NvlinkRecord {
  std::string peer;  // a GPU's bus id; else links to an NVSwitch
  int links = 1;
  uint64_t bytes_per_s = 0;  // of one link, one way; 0: unknown
};

// A GPU as its driver tells of it.
struct GpuRecord {
  int index = 0;
  std::string bus_id;             // "0000:07:00.0"
  int numa = -1;                  // -1: unknown
  uint64_t pcie_bytes_per_s = 0;  // the narrowest on the way to the CPU; 0: unknown
  std::string pci_switch;         // what it shares with the devices near it; empty: none known
  std::vector<NvlinkRecord> nvlinks;
  bool assumed_nvlink_rate = false;  // by the generation, not as the driver says
};

// A network adapter.
struct NicRecord {
  std::string name;  // "mlx5_0"
  std::string id;    // as Vertex::id
  int numa = -1;
  uint64_t bytes_per_s = 0;       // line rate; 0: unknown
  uint64_t pcie_bytes_per_s = 0;  // 0: unknown, or no limit
  std::string pci_switch;
  Wire wire = Wire::unknown;
};

// What is inside of one host.
struct HostRecord {
  std::string host;
  bool several_numa = false;  // else all hangs on the host
  std::vector<GpuRecord> gpus;
  std::vector<NicRecord> nics;
};

// The same as a graph. Pure.
Fabric fabric_of(const HostRecord& record);

// One way, of all lanes together, behind the line code (8b/10b to 5 GT/s, 128b/130b, from 64 GT/s
// 242 bytes of 256).
uint64_t pcie_rate(uint64_t megatransfers_per_s, int lanes);
// One way, of one NVLink by the GPU's compute capability (70, 80, 90, ...), as NVIDIA's data sheets
// say; 0: unknown.
uint64_t nvlink_rate(int compute_capability);
// "00000000:07:00.0", "0000:07:00.0": the latter, in lower case.
std::string normal_bus_id(std::string_view id);

// From the kernel's files below `root` ("/sys"): the NUMA node of a device ("/bus/pci/devices/...",
// -1: unknown), whether there are several nodes, and the name under which verbs knows a network
// interface, else its own.
int numa_from_sysfs(const std::string& root, const std::string& device);
bool several_numa_from_sysfs(const std::string& root);
std::string nic_name_from_sysfs(const std::string& root, const std::string& interface);

}  // namespace sennit
