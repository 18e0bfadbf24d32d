// energy.hpp: what this host's processors have used, where the kernel offers a counter (powercap,
// RAPL) and lets this process read it.
#pragma once

#include <optional>
#include <string>

namespace sennit::trainer {

// Joules since some moment, of all packages; it starts again after some hours. None: no counter, or
// not ours to read. powercap: where the kernel has its counters.
std::optional<double> energy_joules(const std::string& powercap = "/sys/class/powercap");

}  // namespace sennit::trainer
