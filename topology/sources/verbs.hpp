// verbs.hpp: RDMA adapters of a host and their ports, as records and as a Fabric. They are read in
// topology/sources/verbs_live.cpp, which is left out where the headers of libibverbs are missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// A port of an RDMA adapter.
struct VerbsPort {
  int number = 1;
  bool active = false;
  bool ethernet = false;  // RoCE; else InfiniBand
  int lid = 0;            // InfiniBand
  std::string gid;     // the first, "fe80:0000:..."; its last half is the port's GUID on InfiniBand
  int width_code = 0;  // as ibv_port_attr has them: 1, 2, 4, 8, 16 are 1x, 4x, 8x, 12x, 2x;
  int speed_code = 0;  // 1, 2, 4, ... 256 are SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR
};

// An RDMA adapter of this host.
struct VerbsDevice {
  std::string name;        // "mlx5_0"
  uint64_t node_guid = 0;  // in this machine's byte order
  int numa = -1;           // -1: unknown
  std::vector<VerbsPort> ports;
};

// bytes/s: InfiniBand's data rate as topology/sources/ibnet/ibnet.hpp has it; on Ethernet the same
// codes stand for 10, 25, 40, ... Gbit/s. 0: unknown.
uint64_t verbs_rate(const VerbsPort& port);

// Each device a NIC: its id the node GUID, by which the subnet's sources know it; its rate that of
// its fastest active port, unknown where none is; near its NUMA node where there are several. Ports
// that are down are notes. Pure.
Fabric fabric_of(const std::vector<VerbsDevice>& devices, const std::string& host,
                 bool several_numa);

}  // namespace sennit
