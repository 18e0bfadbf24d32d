// avx512bf16.cpp: the CPU device's loops in AVX-512 with its rounding to bf16; the build gives
// this file alone those flags.
#if defined(__x86_64__)
#ifndef __clang__  // g++ 12 warns about its own _mm512_undefined_epi32 (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "trainer/device/cpu/kernels/table.hpp"

namespace sennit::trainer {
const CpuKernels kCpuAvx512Bf16 = SENNIT_CPU_TABLE("avx512bf16");
}
#endif
