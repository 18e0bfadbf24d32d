// worker.hpp: what the kernel of src/accelerator/cuda does, on the thread of a stream: it does the
// commands of a mailbox, in an order by chance, and stays until it is told to leave.
#pragma once

#include <cstdint>

#include "tests/soft_gpu/process.hpp"
#include "tests/soft_gpu/stream.hpp"

namespace soft_gpu {

// Returns when the kernel has ended. What the protocol of the mailbox forbids, and an address that
// the device does not reach, break the device.
void run_worker(const Gpu& gpu, uintptr_t mailbox, uintptr_t board, uint64_t launch, Dice dice);

}  // namespace soft_gpu
