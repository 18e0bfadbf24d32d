// kernels.hpp: what the CPU device has on AMX: blocks of bf16 matrix products, and attention of one
// head.
#pragma once

#include "trainer/device/cpu/kernels/kernels.hpp"

namespace sennit::trainer {

// Whether this processor has AMX for bf16 and the system lets this process use it (asked for by the
// first call).
bool has_amx();

// One whole product, c = op(a) * op(b) or c += that, of which calls work out blocks; k is the
// length of its sums. Calls of several threads may share it.
struct AmxProduct {
  Matrix c, a, b;  // bf16 a and b; c either type
  bool transpose_a = false, transpose_b = false, accumulate = false;
  int64_t k = 0;
};

// Columns [first_column, + columns) of b, elements [first_k, + k) of each, into their place in
// `packed`, which has amx_packed_bytes(all columns, all k) bytes aligned to 64. first_column and
// first_k are multiples of 32.
size_t amx_packed_bytes(int64_t columns, int64_t k);
void amx_pack(const AmxProduct& product, void* packed, int64_t first_column, int64_t columns,
              int64_t first_k, int64_t k);
// Rows [first_row, first_row + rows) by columns [first_column, ... + columns) of c; first_column is
// a multiple of 32. `packed` is all of B. `scratch` has amx_scratch_bytes(rows, columns, k) bytes,
// aligned to 64.
size_t amx_scratch_bytes(int64_t rows, int64_t columns, int64_t k);
void amx_multiply(const AmxProduct& product, const void* packed, int64_t first_row, int64_t rows,
                  int64_t first_column, int64_t columns, void* scratch);

// As CpuKernels has them, for bf16 q, k, v and dout.
void amx_attention(const AttentionCall& call, int64_t sequence, int64_t kv_head, int64_t first,
                   int64_t count, CpuScratch& scratch);
void amx_attention_gradient(const AttentionCall& call, int64_t sequence, int64_t kv_head,
                            CpuScratch& scratch);

}  // namespace sennit::trainer
