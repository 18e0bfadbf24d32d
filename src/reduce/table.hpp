// table.hpp: the table of reduction kernels that one instruction set provides, for
// reduce/reduce.cpp and its test.
//
// Each of generic.cpp, avx2.cpp and avx512.cpp compiles reduce/kernels.hpp with its own compiler
// flags and exports one table. Nothing inline is shared between those files, so no code for a wider
// instruction set leaks into others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sennit {

// The operations that kernels know; avg without a divisor and premul_sum are sums.
// The bitwise ones are of integers.
enum class KernelOp : uint8_t { sum, prod, min, max, average, band, bor, bxor };
inline constexpr int kKernelOps = 8;

inline constexpr int kKernelTypes = 12;  // of DataType, in its order

// See reduce() and scale() in reduce/reduce.hpp; `n` inputs, `count` elements each.
using ReduceKernel = void (*)(void* out, const void* const* inputs, size_t n, size_t count,
                              uint64_t divisor);
using ScaleKernel = void (*)(void* out, const void* in, const void* scalar, size_t count);

// A kernel for every type and operation, null where the operation is not of that type. Index by
// DataType and KernelOp.
struct ReduceTable {
  ReduceKernel reduce[kKernelTypes][kKernelOps];
  ScaleKernel scale[kKernelTypes];
};

extern const ReduceTable kReduceGeneric;
#if defined(__x86_64__)
extern const ReduceTable kReduceAvx2;    // needs AVX2 and F16C
extern const ReduceTable kReduceAvx512;  // needs AVX-512 F, BW, DQ, VL
#endif

// The table of "generic", "avx2" or "avx512"; null where this machine lacks it.
const ReduceTable* reduce_table(std::string_view isa);

}  // namespace sennit
