// environment.hpp: the NCCL_* variables that sennit has the like of, turned into SENNIT_* and UCX_*
// ones. What the user set himself stays as it is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// Names and values.
using Variables = std::vector<std::pair<std::string, std::string>>;

// What this host has that a variable may choose from, in the system's order.
struct Host {
  std::vector<std::string> interfaces;    // "eth0": up, and with an address
  std::vector<std::string> device_ports;  // "mlx5_0:1": ports of RDMA devices
};

// What the NCCL_* variables ask for.
struct Translation {
  Variables settings;                // of SENNIT_* and UCX_* ones
  std::vector<std::string> remarks;  // whole lines on what was not, or not wholly, followed
  std::string job_address;           // of NCCL_COMM_ID: where rank 0 listens; empty: not asked for
  bool remarks_asked_for = false;    // by NCCL_DEBUG: at level info, else debug
  bool version_asked_for = false;    // by NCCL_DEBUG, any of its levels
  Outcome off;                       // what cannot be followed and must not be ignored
};

// Pure. `all` is the whole environment.
Translation translate(const Variables& all, const Host& host);

// Once a process, before its first start: sets what translate() says, and says its remarks. Later
// calls return the same.
Outcome read_environment();
// What translate() says of it, once read_environment() went well.
const std::string& asked_job_address();

}  // namespace sennit::nccl
