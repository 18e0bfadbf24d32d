// exported_memory.hpp: memory of a device, as what another process of the host needs to map it.
#pragma once

#include <array>
#include <cstddef>

namespace sennit {

// One allocation of a device's driver. Two are the same where they begin at the same address of the
// same process.
struct ExportedMemory {
  std::byte* begin = nullptr;  // in the process whose memory it is
  size_t bytes = 0;
  int process = 0;
  std::array<std::byte, 64> handle = {};  // the driver's, of no meaning to others
};

}  // namespace sennit
