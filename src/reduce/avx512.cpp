// avx512.cpp: the reduction kernels in AVX-512; the build gives this file alone those flags.
#if defined(__x86_64__)
#ifndef __clang__  // g++ 12 warns about its own _mm512_undefined_epi32 (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define SENNIT_VECTOR_BYTES 64
#include "reduce/kernels.hpp"

namespace sennit {
const ReduceTable kReduceAvx512 = SENNIT_REDUCE_TABLE;
}
#endif
