// cpu_kernels_generic.cpp: the CPU device's loops for any machine.

#include "cpu_kernels_table.hpp"

namespace sennit::trainer {
const CpuKernels kCpuGeneric = SENNIT_CPU_TABLE("generic");
}
