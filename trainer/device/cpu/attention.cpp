// attention.cpp: causal attention over threads (see trainer/device/device.hpp; one head's work is
// in trainer/device/cpu/kernels/attention.hpp). A part is a key/value head of a sequence with all
// query heads that share it; forwards cut into pieces of queries, backwards whole, as its queries
// all add to the same dk and dv.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "trainer/device/cpu/amx/kernels.hpp"
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {
namespace {
constexpr int64_t kQueries = 512;  // of a part

bool all_bf16(std::initializer_list<Matrix> inputs) {
  return std::all_of(inputs.begin(), inputs.end(),
                     [](const Matrix& m) { return m.type == Type::bf16; });
}

}  // namespace

void CpuDevice::attention(Matrix out, float* log_sums, Matrix q, Matrix k, Matrix v,
                          const AttentionShape& shape) {
  AttentionCall call;
  call.out = out;
  call.q = q;
  call.k = k;
  call.v = v;
  call.log_sums = log_sums;
  call.shape = shape;
  const auto kernel = amx_ && all_bf16({q, k, v}) ? amx_attention : kernels_.attention;
  const int64_t pieces = (shape.queries + kQueries - 1) / kQueries,
                heads = shape.batch * shape.kv_heads;
  threads_.run(heads * pieces, [&](int64_t part, int thread) {
    const int64_t first = (pieces - 1 - part / heads) * kQueries;  // the last see most keys: first
    kernel(call, part % heads / shape.kv_heads, part % shape.kv_heads, first,
           std::min(kQueries, shape.queries - first),
           attention_scratch_[static_cast<size_t>(thread)]);
  });
}

void CpuDevice::attention_gradient(Matrix dq, Matrix dk, Matrix dv, bool accumulate, Matrix dout,
                                   Matrix q, Matrix k, Matrix v, const float* log_sums,
                                   const float* dots, const AttentionShape& shape) {
  AttentionCall call;
  call.dq = dq;
  call.dk = dk;
  call.dv = dv;
  call.dout = dout;
  call.q = q;
  call.k = k;
  call.v = v;
  call.log_sums = const_cast<float*>(log_sums);
  call.dots = dots;
  call.shape = shape;
  call.accumulate = accumulate;
  const auto kernel =
      amx_ && all_bf16({q, k, v, dout}) ? amx_attention_gradient : kernels_.attention_gradient;
  threads_.run(shape.batch * shape.kv_heads, [&](int64_t part, int thread) {
    kernel(call, part / shape.kv_heads, part % shape.kv_heads,
           attention_scratch_[static_cast<size_t>(thread)]);
  });
}

void CpuDevice::attention_join(Matrix out, float* log_sums, Matrix other,
                               const float* other_log_sums, const AttentionShape& shape) {
  SENNIT_CHECK(out.type == Type::f32);
  pieces(shape.batch * shape.queries, rows_of_piece(out.columns),
         [&](int64_t first, int64_t count) {
           for (int64_t row = first; row < first + count; row++)
             for (int64_t head = 0; head < shape.query_heads; head++) {
               const int64_t i = (row / shape.queries * shape.query_heads + head) * shape.queries +
                                 row % shape.queries;
               const float mine = log_sums[i], theirs = other_log_sums[i],
                           most = std::max(mine, theirs);
               if (most == -INFINITY) continue;  // neither saw a key: 0 stays 0
               const float sum = most + std::log(std::exp(mine - most) + std::exp(theirs - most));
               kernels_.join(static_cast<float*>(at(out, row, head * shape.head_size)),
                             std::exp(mine - sum), at(other, row, head * shape.head_size),
                             other.type, std::exp(theirs - sum), shape.head_size);
               log_sums[i] = sum;
             }
         });
}

void CpuDevice::attention_dots(float* dots, Matrix dout, Matrix out, const AttentionShape& shape) {
  pieces(shape.batch * shape.queries, rows_of_piece(out.columns),
         [&](int64_t first, int64_t count) {
           for (int64_t row = first; row < first + count; row++)
             for (int64_t head = 0; head < shape.query_heads; head++)
               dots[(row / shape.queries * shape.query_heads + head) * shape.queries +
                    row % shape.queries] =
                   kernels_.dot(at(dout, row, head * shape.head_size), dout.type,
                                at(out, row, head * shape.head_size), out.type, shape.head_size);
         });
}

}  // namespace sennit::trainer
