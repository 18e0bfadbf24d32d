// nvml.cpp: see topology/sources/nvml.hpp. The few declarations of NVML's stable interface that are
// used stand here, so that neither CUDA nor its headers are needed; every function that an older
// driver lacks is done without.
#include "topology/sources/nvml.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "base/process/forked.hpp"
#include "base/process/shared_library.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

constexpr int kSuccess = 0;
constexpr unsigned kMaxLinks = 18;
constexpr unsigned kRemoteIsGpu = 0;                 // NVML_NVLINK_DEVICE_TYPE_GPU
constexpr unsigned kFieldNvlinkMbytePerSecond = 90;  // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
constexpr unsigned kFieldIsUnsigned = 1;             // NVML_VALUE_TYPE_UNSIGNED_INT

using Device = void*;

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int result;
  union {
    double number;
    unsigned whole;
    unsigned long long wide;
  } value;
};

// What an older driver may lack is optional: who asks for it is told that it failed.
struct Nvml : SharedLibrary {
  Nvml() : SharedLibrary("libnvidia-ml.so.1") {}

  template <typename... Arguments>
  class Question {
   public:
    Question(Nvml& library, const char* name) : function_(library, name, Need::optional) {}
    bool operator()(Arguments... arguments) const {
      return function_ && function_(arguments...) == kSuccess;
    }

   private:
    Function<int(Arguments...)> function_;
  };

  const Question<> initialise{*this, "nvmlInit_v2"};
  const Question<> shut_down{*this, "nvmlShutdown"};
  const Question<unsigned*> count{*this, "nvmlDeviceGetCount_v2"};
  const Question<unsigned, Device*> handle{*this, "nvmlDeviceGetHandleByIndex_v2"};
  const Question<Device, PciInfo*> pci{*this, "nvmlDeviceGetPciInfo_v3"};
  const Question<Device, unsigned*> generation{*this, "nvmlDeviceGetMaxPcieLinkGeneration"};
  const Question<Device, unsigned*> width{*this, "nvmlDeviceGetCurrPcieLinkWidth"};
  const Question<Device, int*, int*> capability{*this, "nvmlDeviceGetCudaComputeCapability"};
  const Question<Device, unsigned, unsigned*> link_state{*this, "nvmlDeviceGetNvLinkState"};
  const Question<Device, unsigned, unsigned*> link_type{*this,
                                                        "nvmlDeviceGetNvLinkRemoteDeviceType"};
  const Question<Device, unsigned, PciInfo*> link_peer{*this,
                                                       "nvmlDeviceGetNvLinkRemotePciInfo_v2"};
  const Question<Device, int, FieldValue*> fields{*this, "nvmlDeviceGetFieldValues"};
};

std::string bus_id(const PciInfo& pci) {
  return std::string(pci.bus_id, std::find(pci.bus_id, pci.bus_id + sizeof pci.bus_id, '\0'));
}

NvmlGpu read_gpu(const Nvml& nvml, Device device) {
  NvmlGpu gpu;
  PciInfo pci{};
  if (nvml.pci(device, &pci)) gpu.bus_id = bus_id(pci);
  unsigned value = 0;
  if (nvml.generation(device, &value)) gpu.pcie_generation = static_cast<int>(value);
  if (nvml.width(device, &value)) gpu.pcie_width = static_cast<int>(value);
  int major = 0;
  int minor = 0;
  if (nvml.capability(device, &major, &minor)) gpu.compute_capability = major * 10 + minor;
  FieldValue speed{};
  speed.field = kFieldNvlinkMbytePerSecond;
  if (nvml.fields(device, 1, &speed) && speed.result == kSuccess && speed.type == kFieldIsUnsigned)
    gpu.nvlink_mbyte_per_s = speed.value.whole;
  for (unsigned i = 0; i < kMaxLinks; i++) {
    unsigned active = 0;
    if (!nvml.link_state(device, i, &active) || active == 0) continue;
    NvmlLink link;
    unsigned type = ~0U;
    link.to_gpu = nvml.link_type(device, i, &type) && type == kRemoteIsGpu;
    PciInfo peer{};
    if (nvml.link_peer(device, i, &peer)) link.peer = bus_id(peer);
    gpu.links.push_back(std::move(link));
  }
  gpu.numa = numa_from_sysfs("/sys", "/bus/pci/devices/" + normal_bus_id(gpu.bus_id));
  return gpu;
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  const std::vector<NvmlGpu> gpus = read_nvml_gpus();
  if (gpus.empty()) return std::optional<Fabric>();
  return std::optional<Fabric>(
      fabric_of(record_of(gpus, context.host, several_numa_from_sysfs("/sys"))));
}

}  // namespace

HostRecord record_of(const std::vector<NvmlGpu>& gpus, const std::string& host, bool several_numa) {
  constexpr std::array<uint64_t, 7> kMegatransfers = {0,      2'500,  5'000, 8'000,
                                                      16'000, 32'000, 64'000};
  HostRecord record;
  record.host = host;
  record.several_numa = several_numa;
  for (size_t i = 0; i < gpus.size(); i++) {
    const NvmlGpu& gpu = gpus[i];
    GpuRecord out;
    out.index = static_cast<int>(i);
    out.bus_id = normal_bus_id(gpu.bus_id);
    out.numa = gpu.numa;
    const bool known =
        gpu.pcie_generation > 0 && gpu.pcie_generation < static_cast<int>(kMegatransfers.size());
    if (known)
      out.pcie_bytes_per_s =
          pcie_rate(kMegatransfers[static_cast<size_t>(gpu.pcie_generation)], gpu.pcie_width);
    out.assumed_nvlink_rate = gpu.nvlink_mbyte_per_s == 0;
    for (const NvmlLink& link : gpu.links) {
      const uint64_t rate = gpu.nvlink_mbyte_per_s != 0 ? gpu.nvlink_mbyte_per_s * 1'000'000
                                                        : nvlink_rate(gpu.compute_capability);
      out.nvlinks.push_back({link.to_gpu ? normal_bus_id(link.peer) : "", 1, rate});
    }
    record.gpus.push_back(std::move(out));
  }
  return record;
}

std::vector<NvmlGpu> read_nvml_gpus() {
  const ForeignCall call;
  static const Nvml nvml;
  if (!nvml.usable()) return {};
  std::vector<NvmlGpu> gpus;
  if (!nvml.initialise()) return gpus;
  unsigned count = 0;
  if (!nvml.count(&count)) count = 0;
  for (unsigned i = 0; i < count; i++) {
    Device device = nullptr;
    if (nvml.handle(i, &device)) gpus.push_back(read_gpu(nvml, device));
  }
  static_cast<void>(nvml.shut_down());
  return gpus;
}

SENNIT_SOURCE_ENTRY(nvml, 38, true, read)

}  // namespace sennit
