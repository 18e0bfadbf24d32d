// nvml.hpp: NVIDIA's GPUs in this host, as NVML's figures and as records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/fabric/inside.hpp"

namespace sennit {

// What NVML says of a GPU, as it says it.
struct NvmlLink {
  bool to_gpu = false;  // else an NVSwitch, or unknown
  std::string peer;     // bus id of the other end
};
struct NvmlGpu {
  std::string bus_id;  // "00000000:07:00.0"
  // the highest that GPU and slot can do, for an idle one slows down; 0: unknown
  int pcie_generation = 0;
  int pcie_width = 0;               // lanes
  int compute_capability = 0;       // 90
  uint64_t nvlink_mbyte_per_s = 0;  // of each link, one way; 0: not said
  int numa = -1;
  std::vector<NvmlLink> links;  // active ones
};

// GPUs in NVML's order, that of PCI, which is CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID. Pure.
HostRecord record_of(const std::vector<NvmlGpu>& gpus, const std::string& host, bool several_numa);

// Through libnvidia-ml.so.1, opened here: needs nothing at build time. Empty where there is no such
// library or no driver. Initialising the driver may take some 100 ms, more where nothing keeps it
// loaded.
std::vector<NvmlGpu> read_nvml_gpus();

}  // namespace sennit
