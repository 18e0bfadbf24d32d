// generic.cpp: the CPU device's loops for any machine.

#include "trainer/device/cpu/kernels/table.hpp"

namespace sennit::trainer {
const CpuKernels kCpuGeneric = SENNIT_CPU_TABLE("generic");
}
