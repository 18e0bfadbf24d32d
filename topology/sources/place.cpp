// place.cpp: where this process runs, from its environment and the kernel's files: cheap enough for
// every rank (no hwloc).
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>

#include <fmt/core.h>

#include "topology/source.hpp"

namespace sennit {
namespace {

// "0-3,8" -> whether all set CPUs are in the list; false also where the list is malformed.
bool within(const cpu_set_t& set, std::string_view list) {
  cpu_set_t listed;
  CPU_ZERO(&listed);
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(range.size() + 1, list.size()));
    int first = 0;
    const auto [stop, failed] = std::from_chars(range.data(), range.data() + range.size(), first);
    int last = first;
    if (failed != std::errc()) return false;
    if (stop < range.data() + range.size() && *stop == '-')
      std::from_chars(stop + 1, range.data() + range.size(), last);
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
      CPU_SET(static_cast<size_t>(cpu), &listed);
  }
  cpu_set_t both;
  CPU_AND(&both, &set, &listed);
  return CPU_EQUAL(&both, &set) != 0;
}

// "mlx5_3:1" -> "mlx5_3"; empty where several are listed, or none is.
std::string only_device(std::string_view list) {
  if (list.empty() || list == "all" || list.find(',') != std::string_view::npos) return "";
  return std::string(list.substr(0, list.find(':')));
}

}  // namespace

std::string this_host() {
  if (const char* const node = std::getenv("SLURMD_NODENAME"); node != nullptr && *node != '\0')
    return node;
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

Placement place_this_process(const std::string& host) {
  Placement place;
  place.host = host;
  if (const char* const devices = std::getenv("UCX_NET_DEVICES")) place.nic = only_device(devices);
  cpu_set_t bound;
  if (sched_getaffinity(0, sizeof bound, &bound) != 0) return place;
  constexpr int kMaxNodes = 1024;
  int absent = 0;  // node numbers may have gaps
  for (int node = 0; node < kMaxNodes && absent < 16; node++) {
    std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpulist", node));
    std::string list;
    if (!std::getline(file, list)) {
      absent++;
    } else if (within(bound, list)) {
      place.numa = node;
      break;
    }
  }
  return place;
}

}  // namespace sennit
