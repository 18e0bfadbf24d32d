// cpu_kernels_avx512.cpp: the CPU device's loops in AVX512; the build gives this file alone those flags.
#if defined(__x86_64__)
#include "cpu_kernels_table.hpp"

namespace sennit::trainer {
const CpuKernels kCpuAvx512 = SENNIT_CPU_TABLE("avx512");
}
#endif
