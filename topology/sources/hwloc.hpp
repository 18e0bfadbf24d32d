// hwloc.hpp: the inside of a host as hwloc sees it. Made testable: from a topology (of this
// machine or loaded from XML) and a table of line rates.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <hwloc.h>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// Line rate in bytes/s of an operating system's device ("eth0", "mlx5_0"); 0: unknown.
using LineRate = std::function<uint64_t(const std::string& device)>;

// The host, its NUMA nodes where there are several, and its physical NICs, each linked with the
// NUMA node that it is near (else the host) at its line rate.
Fabric fabric_from_hwloc(hwloc_topology_t topology, const std::string& host,
                         const LineRate& line_rate);

// As the kernel's files below `root` ("/sys") say. Virtual interfaces, and ports without a link,
// claim rates that mean nothing: unknown.
uint64_t line_rate_from_sysfs(const std::string& root, const std::string& device);

}  // namespace sennit
