// inside.cpp: see topology/fabric/inside.hpp.
#include "topology/fabric/inside.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/core.h>

#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr int kMostCables = 65'535;
constexpr int kMostLanes = 64;
constexpr uint64_t kMega = 1'000'000;
// Million transfers a second and lane. More than the most is not believed.
constexpr uint64_t kMostTransfers = 1'000'000;
// Up to the second generation of PCIe 8 of 10 bits are data, then 128 of 130, and from the sixth on
// 242 of 256 bytes.
constexpr uint64_t kSecondGeneration = 5'000;
constexpr uint64_t kSixthGeneration = 64'000;

class HostBuilder {
 public:
  explicit HostBuilder(const HostRecord& record) : record_(record) {
    add(VertexKind::host, record.host, "");
  }

  Fabric build() {
    for (const GpuRecord& gpu : record_.gpus) gpus_.push_back(add_gpu(gpu));
    for (size_t i = 0; i < gpus_.size(); i++)
      if (gpus_[i] >= 0) join_nvlinks(record_.gpus[i], gpus_[i]);
    for (const NicRecord& nic : record_.nics) add_nic(nic);
    return std::move(fabric_);
  }

 private:
  int add(VertexKind kind, const std::string& name, const std::string& id) {
    if (!names_.insert(name).second) return -1;
    fabric_.vertices.push_back({kind, name, "", kind == VertexKind::host ? -1 : 0, id});
    return static_cast<int>(fabric_.vertices.size()) - 1;
  }

  // The NUMA node's vertex, or the host's.
  int near(int numa) {
    if (!record_.several_numa || numa < 0) return 0;
    const auto [entry, added] = numa_.emplace(numa, 0);
    if (added)
      entry->second = add(VertexKind::numa, fmt::format("{}/numa{}", record_.host, numa), "");
    return std::max(entry->second, 0);
  }

  void arc(int from, int to, uint64_t rate, Provenance provenance, int cables, Wire wire) {
    if (from == to || !linked_.emplace(from, to).second) return;
    Link link;
    link.from = from;
    link.to = to;
    link.capacity = {rate, rate == 0 ? Provenance::unknown : provenance};
    link.cables = std::clamp(cables, 1, kMostCables);
    link.wire = wire;
    fabric_.links.push_back(link);
  }
  void join(int a, int b, uint64_t rate, Provenance provenance = Provenance::declared,
            int cables = 1, Wire wire = Wire::unknown) {
    arc(a, b, rate, provenance, cables, wire);
    arc(b, a, rate, provenance, cables, wire);
  }

  int add_gpu(const GpuRecord& gpu) {
    const int vertex =
        add(VertexKind::gpu, fmt::format("{}/gpu{}", record_.host, gpu.index), gpu.bus_id);
    if (vertex < 0) return -1;
    uint64_t rate = 0;
    int links = 0;
    bool known = true;
    for (const NvlinkRecord& nvlink : gpu.nvlinks) {
      rate += nvlink.bytes_per_s * static_cast<uint64_t>(nvlink.links);
      links += nvlink.links;
      known = known && nvlink.bytes_per_s != 0;
    }
    // First, for where there are no NUMA nodes the host has one link for both, and NVLink is what
    // is used.
    if (links > 0) join(vertex, 0, known ? rate : 0, provenance(gpu), links);
    join(vertex, near(gpu.numa), gpu.pcie_bytes_per_s);
    return vertex;
  }

  static Provenance provenance(const GpuRecord& gpu) {
    return gpu.assumed_nvlink_rate ? Provenance::assumed : Provenance::declared;
  }

  void join_nvlinks(const GpuRecord& gpu, int vertex) {
    std::map<int, NvlinkRecord> peers;  // vertex -> all links with it
    for (const NvlinkRecord& nvlink : gpu.nvlinks) {
      for (size_t i = 0; i < record_.gpus.size(); i++) {
        if (nvlink.peer.empty() || record_.gpus[i].bus_id != nvlink.peer || gpus_[i] < 0) continue;
        NvlinkRecord& sum =
            peers.try_emplace(gpus_[i], NvlinkRecord{"", 0, nvlink.bytes_per_s}).first->second;
        sum.links += nvlink.links;
      }
    }
    for (const auto& [peer, sum] : peers)
      arc(vertex, peer, sum.bytes_per_s * static_cast<uint64_t>(sum.links), provenance(gpu),
          sum.links, Wire::unknown);
  }

  void add_nic(const NicRecord& nic) {
    const int vertex = add(VertexKind::nic, fmt::format("{}/{}", record_.host, nic.name), nic.id);
    if (vertex < 0) return;
    uint64_t rate = nic.bytes_per_s;
    if (rate != 0 && nic.pcie_bytes_per_s != 0) rate = std::min(rate, nic.pcie_bytes_per_s);
    join(near(nic.numa), vertex, rate, Provenance::declared, 1, nic.wire);
    for (size_t i = 0; i < gpus_.size(); i++) {
      const GpuRecord& gpu = record_.gpus[i];
      if (gpus_[i] < 0 || nic.pci_switch.empty() || gpu.pci_switch != nic.pci_switch) continue;
      join(gpus_[i], vertex,
           gpu.pcie_bytes_per_s == 0 ? rate : std::min(rate, gpu.pcie_bytes_per_s));
    }
  }

  const HostRecord& record_;
  Fabric fabric_;
  std::vector<int> gpus_;
  std::map<int, int> numa_;  // node -> vertex
  std::set<std::string> names_;
  std::set<std::pair<int, int>> linked_;
};

}  // namespace

Fabric fabric_of(const HostRecord& record) { return HostBuilder(record).build(); }

uint64_t pcie_rate(uint64_t megatransfers_per_s, int lanes) {
  if (lanes <= 0 || lanes > kMostLanes || megatransfers_per_s > kMostTransfers) return 0;
  const uint64_t bits = megatransfers_per_s * kMega * static_cast<uint64_t>(lanes);
  if (megatransfers_per_s <= kSecondGeneration) return bits * 8 / 10 / 8;
  return megatransfers_per_s < kSixthGeneration ? bits * 128 / 130 / 8 : bits * 242 / 256 / 8;
}

uint64_t nvlink_rate(int compute_capability) {
  constexpr uint64_t kGiga = 1'000'000'000;
  switch (compute_capability) {
    case 60:
      return 20 * kGiga;
    case 70:
    case 80:
    case 90:
      return 25 * kGiga;
    case 86:
      return 14'062'500'000;
    case 100:
    case 103:
      return 50 * kGiga;
    default:
      return 0;
  }
}

std::string normal_bus_id(std::string_view id) {
  if (id.size() == 16 && id.substr(0, 4) == "0000" && id[8] == ':') id.remove_prefix(4);
  return lower(id);
}

int numa_from_sysfs(const std::string& root, const std::string& device) {
  std::ifstream file(root + device + "/numa_node");
  int node = -1;
  return file >> node && node >= 0 ? node : -1;
}

bool several_numa_from_sysfs(const std::string& root) {
  std::error_code failed;
  int nodes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "/devices/system/node", failed)) {
    const std::string name = entry.path().filename();
    if (name.rfind("node", 0) == 0 && name.size() > 4 &&
        std::isdigit(static_cast<unsigned char>(name[4])) != 0)
      nodes++;
  }
  return nodes > 1;
}

std::string nic_name_from_sysfs(const std::string& root, const std::string& interface) {
  std::error_code failed;
  std::string first;
  const std::string folder = root + "/class/net/" + interface + "/device/infiniband";
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename();
    if (first.empty() || name < first) first = name;
  }
  return first.empty() ? interface : first;
}

}  // namespace sennit
