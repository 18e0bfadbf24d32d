// energy.hpp: what this host's processors have used, where the kernel offers a counter (powercap, RAPL) and
// lets this process read it.
#pragma once

#include <optional>

namespace sennit::trainer {

// Joules since some moment, of all packages; it starts again after some hours. None: no counter, or not ours
// to read.
std::optional<double> energy_joules();

}  // namespace sennit::trainer
