// device_memory.hpp: whether memory is a CUDA device's alone. An MPI that knows of CUDA packs it.
#pragma once

namespace sennit::pmpi {

// Looks whether the process has loaded CUDA's driver: once in a call, as it may do so at any time.
void look_for_devices();
// The driver is asked only where the last look found it.
bool is_on_device(const void* memory);

}  // namespace sennit::pmpi
