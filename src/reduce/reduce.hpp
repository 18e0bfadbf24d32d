// reduce.hpp: typed reductions on the CPU: several inputs in one pass, AVX-512 or AVX2 picked at
// run time.
//
// Same bits on every instruction set: no FMA contraction, one rounding per addition, -0 < +0 in min
// and max. NaN wins over numbers, also in min and max, and every NaN result is the type's canonical
// quiet NaN (processors differ in whose payload survives). 16- and 8-bit floats are widened to
// fp32, combined in input order, and rounded to nearest even once. fp8 e4m3 has no infinity: what
// overflows is NaN. Integers wrap within their type; avg of integers divides the wrapped sum and
// truncates toward zero. Any alignment, any count. Cost: one read of each input and one write, near
// memory bandwidth (perf/components).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "reduce/table.hpp"
#include "schedule/request.hpp"

namespace sennit {

// out[i] = finish(in[0][i] op in[1][i] op ... ), in that order. `inputs` >= 1; one input without a
// divisor is copied. out may be any of the inputs, but must not overlap one otherwise. divisor: avg
// divides by it (a number of ranks; 1: not yet final). Op::avg sums like sum; Op::premul_sum sums
// like sum (see scale). The operation applies to the type.
void reduce(DataType type, Op op, void* out, std::span<const void* const> inputs, size_t count,
            uint64_t divisor = 1);

// out[i] = scalar * in[i]; scalar points at one element of `type`. out may be in. For premul_sum.
void scale(DataType type, void* out, const void* in, const void* scalar, size_t count);

// Which kernel that is. `divisor` as above.
KernelOp kernel_op(Op op, uint64_t divisor);

// "avx512", "avx2" or "generic": what reduce() uses here. SENNIT_ISA forces a lower one, for tests.
std::string_view reduce_isa();

// Conversions, used by tests and the benchmark's reference: one element to and from double, rounded
// to nearest even; integers truncate and saturate.
double to_double(DataType type, const void* element);
void from_double(DataType type, double value, void* element);

}  // namespace sennit
