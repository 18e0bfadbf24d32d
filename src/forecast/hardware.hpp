// hardware.hpp: accelerators as data: what each can do at most, and which document says so.
//
// Peaks are dense: data sheets that print a figure "with sparsity" are halved, and the source says
// so. Rates of links are per direction, where vendors like to add both. A figure of 0 is one that
// does not exist or that nobody printed. Gigabytes of memory are 10^9 bytes, as printed, unless the
// source says GiB.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace sennit::forecast {

// A number of a data sheet.
struct Figure {
  double value = 0;         // 0: none, or unknown
  const char* source = "";  // document and year, and what was made of its figure
  bool known() const { return value > 0; }
};

// What one accelerator can do at most, and what comes with it in its usual server.
struct Accelerator {
  const char* name = "";                     // as --gpu takes it
  const char* full_name = "";                // which variant
  Figure fp32, tf32, bf16, fp16, fp8, int8;  // dense operations/s; fp32: without tensor cores
  Figure memory_bytes, memory_bytes_per_s;
  // NVLink, Infinity Fabric, ICI: all links of one accelerator, one direction
  Figure scale_up_bytes_per_s;
  Figure nic_bytes_per_s;  // one accelerator's share of its usual server's, one direction
  Figure watts;            // of the accelerator, at most
  Figure server_watts;     // its share of its usual server's, at most, processors and fans included
};

// All that are known.
std::span<const Accelerator> accelerators();
// By name, in any case; the error lists all names.
Result<Accelerator> find_accelerator(std::string_view name);

}  // namespace sennit::forecast
