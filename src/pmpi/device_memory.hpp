// device_memory.hpp: whether memory is a CUDA device's alone. An MPI that knows of CUDA packs it.
#pragma once

namespace sennit::pmpi {

// CUDA's driver is asked only where the process has loaded it.
bool is_on_device(const void* memory);

}  // namespace sennit::pmpi
