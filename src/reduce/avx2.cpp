// avx2.cpp: the reduction kernels in AVX2 and F16C; the build gives this file alone those flags.
#if defined(__x86_64__)
#define SENNIT_VECTOR_BYTES 32
#include "reduce/kernels.hpp"

namespace sennit {
const ReduceTable kReduceAvx2 = SENNIT_REDUCE_TABLE;
}
#endif
