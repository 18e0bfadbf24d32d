// rdma.hpp: whether this process can use RDMA, as far as the kernel tells. Needs no library.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace sennit::ucx {

// What lies in a folder; nothing where it cannot be read.
inline std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator i(folder, error), end; !error && i != end;
       i.increment(error))
    entries.push_back(i->path());
  return entries;
}

// "4: ACTIVE" is a port that is up.
inline bool has_port_up(const std::filesystem::path& device) {
  return std::ranges::any_of(entries_of(device / "ports"), [](const std::filesystem::path& port) {
    std::string state;
    return std::getline(std::ifstream(port / "state"), state) && state.starts_with("4:");
  });
}

// Whether some port is up, and some device may be opened: a container may see those of its host
// under /sys and have none under /dev. Looks each time. The folders are other ones in tests.
inline bool has_rdma(const std::filesystem::path& devices = "/sys/class/infiniband",
                     const std::filesystem::path& nodes = "/dev/infiniband") {
  return std::ranges::any_of(entries_of(devices), has_port_up) &&
         std::ranges::any_of(entries_of(nodes), [](const std::filesystem::path& node) {
           return node.filename().string().starts_with("uverbs") &&
                  access(node.c_str(), R_OK | W_OK) == 0;
         });
}

}  // namespace sennit::ucx
