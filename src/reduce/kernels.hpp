// kernels.hpp: the loops of typed reductions, compiled once per instruction set (see
// reduce/table.hpp).
//
// Written in the compiler's vector extensions over SENNIT_VECTOR_BYTES (16, 32 or 64), so that
// every instruction set runs the same arithmetic lane by lane. A kernel holds a few vectors of the
// result in registers, adds input after input, and stores once: each input is read once, the output
// written once, and nothing in between touches memory. The remainder goes through the same code in
// a padded vector. Everything is in an anonymous namespace: no symbol here may be merged with
// another file's. Use no std templates here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/lanes.hpp"
#include "reduce/table.hpp"

namespace sennit {
namespace {

// Two vectors to one, lane by lane. An average adds up, and finish() divides the whole sum.
template <typename L, KernelOp op>
inline typename L::V combine(typename L::V a, typename L::V b) {
  if constexpr (op == KernelOp::prod) return a * b;
  if constexpr (op == KernelOp::min) return L::min(a, b);
  if constexpr (op == KernelOp::max) return L::max(a, b);
  if constexpr (op == KernelOp::band) return a & b;
  if constexpr (op == KernelOp::bor) return a | b;
  if constexpr (op == KernelOp::bxor) return a ^ b;
  return a + b;
}

// What is stored of a result: divided where it is an average, with canonical NaNs.
template <typename L, KernelOp op>
inline typename L::V finish(typename L::V v, typename L::Divisor divisor) {
  if constexpr (op == KernelOp::average) v = L::divide(v, divisor);
  return L::canonical(v);
}

// A ReduceKernel for elements of L. n >= 1; `out` may be any of the inputs, since what is stored
// has been read from all of them.
template <typename L, KernelOp op>
void reduce_kernel(void* out, const void* const* inputs, size_t n, size_t count, uint64_t divisor) {
  using V = typename L::V;
  constexpr size_t kStep = L::kLanes * L::kElementBytes;
  constexpr size_t kUnroll = 4;  // independent chains: hides the latency of an addition
  const auto* const* in = reinterpret_cast<const char* const*>(inputs);
  auto* const to = static_cast<char*>(out);
  const auto by = static_cast<typename L::Divisor>(divisor);
  const size_t bytes = count * L::kElementBytes;
  size_t at = 0;
  for (; at + kUnroll * kStep <= bytes; at += kUnroll * kStep) {
    V sum[kUnroll];
    for (size_t u = 0; u < kUnroll; u++) sum[u] = L::load(in[0] + at + u * kStep);
    for (size_t k = 1; k < n; k++) {
      const char* const from = in[k] + at;
      for (size_t u = 0; u < kUnroll; u++)
        sum[u] = combine<L, op>(sum[u], L::load(from + u * kStep));
    }
    for (size_t u = 0; u < kUnroll; u++) L::store(to + at + u * kStep, finish<L, op>(sum[u], by));
  }
  for (; at < bytes; at += kStep) {
    const size_t left = bytes - at < kStep ? bytes - at : kStep;
    char padded[kStep] = {};
    __builtin_memcpy(padded, in[0] + at, left);
    V sum = L::load(padded);
    for (size_t k = 1; k < n; k++) {
      __builtin_memcpy(padded, in[k] + at, left);
      sum = combine<L, op>(sum, L::load(padded));
    }
    L::store(padded, finish<L, op>(sum, by));
    __builtin_memcpy(to + at, padded, left);
  }
}

// A ScaleKernel for elements of L. `out` may be `in`.
template <typename L>
void scale_kernel(void* out, const void* in, const void* scalar, size_t count) {
  constexpr size_t kStep = L::kLanes * L::kElementBytes;
  char padded[kStep];
  for (size_t i = 0; i < L::kLanes; i++)
    __builtin_memcpy(padded + i * L::kElementBytes, scalar, L::kElementBytes);
  const typename L::V factor = L::load(padded);
  const auto* const from = static_cast<const char*>(in);
  auto* const to = static_cast<char*>(out);
  const size_t bytes = count * L::kElementBytes;
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep)
    L::store(to + at, L::canonical(factor * L::load(from + at)));
  if (at == bytes) return;
  __builtin_memcpy(padded, from + at, bytes - at);
  L::store(padded, L::canonical(factor * L::load(padded)));
  __builtin_memcpy(to + at, padded, bytes - at);
}

// One row of the table, in the order of KernelOp.
#define SENNIT_REDUCE_ROW(L, ...)                                         \
  {                                                                       \
    reduce_kernel<L, KernelOp::sum>, reduce_kernel<L, KernelOp::prod>,    \
        reduce_kernel<L, KernelOp::min>, reduce_kernel<L, KernelOp::max>, \
        reduce_kernel<L, KernelOp::average> __VA_OPT__(, ) __VA_ARGS__    \
  }
#define SENNIT_REDUCE_INTEGER_ROW(T)                                       \
  SENNIT_REDUCE_ROW(Integer<T>, reduce_kernel<Integer<T>, KernelOp::band>, \
                    reduce_kernel<Integer<T>, KernelOp::bor>,              \
                    reduce_kernel<Integer<T>, KernelOp::bxor>)
// In the order of DataType.
#define SENNIT_REDUCE_TABLE                                                                       \
  {                                                                                               \
    {SENNIT_REDUCE_INTEGER_ROW(int8_t),  SENNIT_REDUCE_INTEGER_ROW(uint8_t),                      \
     SENNIT_REDUCE_INTEGER_ROW(int32_t), SENNIT_REDUCE_INTEGER_ROW(uint32_t),                     \
     SENNIT_REDUCE_INTEGER_ROW(int64_t), SENNIT_REDUCE_INTEGER_ROW(uint64_t),                     \
     SENNIT_REDUCE_ROW(Float16),         SENNIT_REDUCE_ROW(Bfloat16),                             \
     SENNIT_REDUCE_ROW(Float32),         SENNIT_REDUCE_ROW(Float64),                              \
     SENNIT_REDUCE_ROW(Float8E4m3),      SENNIT_REDUCE_ROW(Float8E5m2)},                          \
    {                                                                                             \
      scale_kernel<Integer<int8_t>>, scale_kernel<Integer<uint8_t>>,                              \
          scale_kernel<Integer<int32_t>>, scale_kernel<Integer<uint32_t>>,                        \
          scale_kernel<Integer<int64_t>>, scale_kernel<Integer<uint64_t>>, scale_kernel<Float16>, \
          scale_kernel<Bfloat16>, scale_kernel<Float32>, scale_kernel<Float64>,                   \
          scale_kernel<Float8E4m3>, scale_kernel<Float8E5m2>                                      \
    }                                                                                             \
  }

}  // namespace
}  // namespace sennit
