// nccl_xml.cpp: the inside of a host as NCCL writes it (NCCL_TOPO_DUMP_FILE) and reads it
// (NCCL_TOPO_FILE): system > cpu > pci > ... > gpu > nvlink, and nic > net. Read with pugixml.
//
// A PCI path is as fast as its narrowest part. A net's speed is in Mbit/s. NVLinks are counted and
// not rated there: their rate is assumed from the GPU's generation. A net's guid is not an id in
// our sense, for NCCL writes the system image's, in the machine's byte order. Templates without gpu
// and net elements say nothing. Cost: linear in the text.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <vector>

#include <fmt/core.h>
#include <pugixml.hpp>

#include "topology/fabric/inside.hpp"
#include "topology/fabric/units.hpp"
#include "topology/source.hpp"
#include "topology/text/read_file.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr size_t kMaxDevices = 4096;
constexpr int kMaxDepth = 32;
// What the attributes may be at most.
constexpr int kMostIndex = 1023;  // of a NUMA node, and of a GPU
constexpr int kMostLinks = 1024;  // NVLinks to one peer
constexpr int kMostCapability = 10'000;
constexpr size_t kMostNameBytes = 64;  // of a NIC

// Where on the way from the CPU to a device we are.
struct Path {
  int numa = -1;
  uint64_t pcie_bytes_per_s = 0;  // 0: no limit known
  std::string bus_id;             // of the last PCI device; empty: none
  std::string pci_switch;         // the outermost bridge
};

class XmlReader {
 public:
  XmlReader(std::string_view text, const std::string& file, const std::string& host)
      : text_(text), file_(file) {
    record_.host = host;
  }

  Result<HostRecord> read() {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed = document.load_buffer(text_.data(), text_.size());
    if (!parsed) return error(parsed.offset, fmt::format("XML ({})", parsed.description()));
    const pugi::xml_node system = document.document_element();
    if (std::string_view(system.name()) != "system")
      return error(system, "<system>, as NCCL writes it");
    for (const pugi::xml_node cpu : system.children("cpu")) {
      Path path;
      SENNIT_RETURN_IF_ERROR(number(cpu, "numaid", -1, kMostIndex, &path.numa));
      numa_nodes_.insert(path.numa);
      SENNIT_RETURN_IF_ERROR(read_below(cpu, path, 0));
    }
    record_.several_numa = numa_nodes_.size() > 1;
    return std::move(record_);
  }

 private:
  Status error(ptrdiff_t offset, std::string_view expected) const {
    const size_t at = std::min(static_cast<size_t>(std::max<ptrdiff_t>(offset, 0)), text_.size());
    const std::string_view before = text_.substr(0, at);
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    const std::string_view rest = text_.substr(at);
    return error_at(
        file_, {rest.substr(0, rest.find_first_of("\r\n")), line, at - begin + 1, false}, expected);
  }
  Status error(const pugi::xml_node& node, std::string_view expected) const {
    return error(node.offset_debug(), expected);
  }

  // Absent is as `*value` was. Of an attribute only the element's place is known.
  Status number(const pugi::xml_node& node, const char* name, int least, int most,
                int* value) const {
    const pugi::xml_attribute attribute = node.attribute(name);
    if (!attribute) return {};
    std::string_view text = attribute.value();
    const bool hexadecimal = text.substr(0, 2) == "0x";
    if (hexadecimal) text.remove_prefix(2);
    int read = 0;
    const auto [stop, failed] =
        std::from_chars(text.data(), text.data() + text.size(), read, hexadecimal ? 16 : 10);
    if (failed != std::errc() || stop != text.data() + text.size() || read < least || read > most)
      return error(node,
                   fmt::format("{}=\"a number from {} to {}\" in this element", name, least, most));
    *value = read;
    return {};
  }

  Status read_below(const pugi::xml_node& node, const Path& path, int depth) {
    if (depth > kMaxDepth) return error(node, fmt::format("elements at most {} deep", kMaxDepth));
    for (const pugi::xml_node child : node.children()) {
      const std::string_view name = child.name();
      if (name == "pci") {
        SENNIT_RETURN_IF_ERROR(read_pci(child, path, depth));
      } else if (name == "nic") {
        for (const pugi::xml_node net : child.children("net"))
          SENNIT_RETURN_IF_ERROR(read_net(net, path));
      } else if (name == "gpu") {
        SENNIT_RETURN_IF_ERROR(read_gpu(child, path));
      }
    }
    return {};
  }

  Status read_pci(const pugi::xml_node& node, Path path, int depth) {
    const std::string bus_id = normal_bus_id(node.attribute("busid").value());
    if (bus_id.empty() || bus_id.size() > 32 ||
        bus_id.find_first_not_of("0123456789abcdef:.") != std::string::npos)
      return error(node, "busid=\"0000:07:00.0\" in this element");
    int lanes = 0;
    SENNIT_RETURN_IF_ERROR(number(node, "link_width", 0, 64, &lanes));
    // "16.0 GT/s PCIe", "16 GT/s", "" or "Unknown": only what is a number counts.
    const char* const speed = node.attribute("link_speed").value();
    char* end = nullptr;
    const double giga = std::strtod(speed, &end);
    const bool known =
        end != speed && std::string_view(end).substr(0, 5) == " GT/s" && giga > 0 && giga <= 1'000;
    const uint64_t rate = known ? pcie_rate(static_cast<uint64_t>(giga * 1000), lanes) : 0;
    if (rate != 0)
      path.pcie_bytes_per_s =
          path.pcie_bytes_per_s == 0 ? rate : std::min(path.pcie_bytes_per_s, rate);
    // A bridge with several devices below; a device on its own slot is near nothing.
    if (path.pci_switch.empty() && node.child("pci")) path.pci_switch = bus_id;
    path.bus_id = bus_id;
    return read_below(node, path, depth + 1);
  }

  Status read_gpu(const pugi::xml_node& node, const Path& path) {
    GpuRecord gpu;
    gpu.index = -1;
    SENNIT_RETURN_IF_ERROR(number(node, "dev", 0, kMostIndex, &gpu.index));
    if (gpu.index < 0) return error(node, "dev=\"NUMBER\" in this element");
    for (const GpuRecord& other : record_.gpus)
      if (other.index == gpu.index)
        return error(node, fmt::format("dev=\"{}\" only once", gpu.index));
    if (record_.gpus.size() + record_.nics.size() >= kMaxDevices)
      return error(node, fmt::format("at most {} GPUs and NICs", kMaxDevices));
    int capability = 0;
    SENNIT_RETURN_IF_ERROR(number(node, "sm", 0, kMostCapability, &capability));
    gpu.bus_id = path.bus_id;
    gpu.numa = path.numa;
    gpu.pcie_bytes_per_s = path.pcie_bytes_per_s;
    gpu.pci_switch = path.pci_switch;
    gpu.assumed_nvlink_rate = true;
    for (const pugi::xml_node nvlink : node.children("nvlink")) {
      NvlinkRecord record;
      SENNIT_RETURN_IF_ERROR(number(nvlink, "count", 1, kMostLinks, &record.links));
      record.peer = normal_bus_id(nvlink.attribute("target").value());
      record.bytes_per_s = nvlink_rate(capability);
      gpu.nvlinks.push_back(std::move(record));
    }
    record_.gpus.push_back(std::move(gpu));
    return {};
  }

  Status read_net(const pugi::xml_node& node, const Path& path) {
    NicRecord nic;
    nic.name = node.attribute("name").value();
    if (nic.name.empty() || nic.name.size() > kMostNameBytes ||
        !std::all_of(nic.name.begin(), nic.name.end(),
                     [](char c) { return c > 32 && c < 127 && c != '"'; }))
      return error(node, "name=\"DEVICE\" in this element");
    if (record_.gpus.size() + record_.nics.size() >= kMaxDevices)
      return error(node, fmt::format("at most {} GPUs and NICs", kMaxDevices));
    int speed = 0;
    SENNIT_RETURN_IF_ERROR(number(node, "speed", -1, kMostMbit, &speed));
    if (speed > 0) nic.bytes_per_s = static_cast<uint64_t>(speed) * kMbit;
    nic.numa = path.numa;
    nic.pcie_bytes_per_s = path.pcie_bytes_per_s;
    nic.pci_switch = path.pci_switch;
    record_.nics.push_back(std::move(nic));
    return {};
  }

  std::string_view text_;
  const std::string& file_;
  HostRecord record_;
  std::set<int> numa_nodes_;
};

bool is_nccl_xml(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '<') return false;
  return text.substr(0, 65'536).find("<system") != std::string_view::npos;
}

Result<Fabric> parse_nccl_xml(std::string_view text, const std::string& file,
                              const std::string& host) {
  const Result<HostRecord> record = XmlReader(text, file, host).read();
  if (!record) return record.status();
  return fabric_of(*record);
}

// What NCCL itself would read: the file that the user names, else the one that a virtual machine's
// service wrote.
Result<std::optional<Fabric>> read(const SourceContext& context) {
  const char* const named = std::getenv("NCCL_TOPO_FILE");
  const std::string path =
      named != nullptr && *named != '\0' ? named : "/var/run/nvidia-topologyd/virtualTopology.xml";
  if (!file_exists(path)) return std::optional<Fabric>();
  const Result<std::string> text = read_file(path);
  if (!text) return text.status();
  Result<Fabric> fabric = parse_nccl_xml(*text, path, context.host);
  if (!fabric) return fabric.status();
  if (fabric->vertices.size() == 1) return std::optional<Fabric>();
  return std::optional<Fabric>(*std::move(fabric));
}

}  // namespace

SENNIT_SOURCE_ENTRY(nccl, 40, true, read)
SENNIT_TEXT_FORM_ENTRY(nccl, is_nccl_xml, parse_nccl_xml)

}  // namespace sennit
