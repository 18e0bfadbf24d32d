// avx2.cpp: the CPU device's loops in AVX2; the build gives this file alone those flags.
#if defined(__x86_64__)
#include "trainer/device/cpu/kernels/table.hpp"

namespace sennit::trainer {
const CpuKernels kCpuAvx2 = SENNIT_CPU_TABLE("avx2");
}
#endif
