// f32.hpp: the small products of attention in f32, for inputs of either type, on any instruction
// set: C in registers, 6 rows by two vectors, B streamed from the first cache.
#pragma once

#include "trainer/device/cpu/kernels/vector.hpp"

namespace sennit::trainer {
namespace {

struct EngineF32 {
  using Element = float;
  static constexpr int64_t kUnit = 32;
  static constexpr int64_t kProductUnit = 1;

  static float at(const void* data, Type type, int64_t i) {
    if (type == Type::f32) return static_cast<const float*>(data)[i];
    return bits_as<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16);
  }
  // Both operands lie row after row. `from` holds rows x columns of one, or (turned) its transpose.
  static void pack(float* to, const void* from, Type type, int64_t stride, bool turned,
                   int64_t rows, int64_t columns) {
    const int64_t width = (columns + kUnit - 1) / kUnit * kUnit,
                  height = (rows + kUnit - 1) / kUnit * kUnit;
    std::memset(to, 0, static_cast<size_t>(height * width) * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++)
        to[r * width + c] = at(from, type, turned ? c * stride + r : r * stride + c);
  }
  static void pack_a(float* to, const void* from, Type type, int64_t stride, bool turned, int64_t m,
                     int64_t k) {
    pack(to, from, type, stride, turned, m, k);
  }
  static void pack_b(float* to, const void* from, Type type, int64_t stride, bool turned, int64_t k,
                     int64_t n) {
    pack(to, from, type, stride, turned, k, n);
  }
  static void put_a(float* to, int64_t /*rows*/, int64_t columns, int64_t row, int64_t column,
                    const Vec (&x)[2][2]) {
    for (int64_t r = 0; r < 2; r++)
      for (int64_t half = 0; half < 2; half++)
        store(to + (row + r) * columns + column + half * kLanes, x[r][half]);
  }
  static void put_b(float* to, int64_t rows, int64_t columns, int64_t row, int64_t column,
                    const Vec (&x)[2][2]) {
    put_a(to, rows, columns, row, column, x);
  }
  static void turn(float* to, const float* from, int64_t stride) {
    for (int64_t r = 0; r < kLanes; r++)
      for (int64_t c = 0; c < kLanes; c++) to[r * kLanes + c] = from[c * stride + r];
  }

  // A vector of this instruction set. What the compiler makes of a longer one goes through memory.
#if defined(__AVX512F__)
  static constexpr int64_t kRegisterLanes = 16;
#elif defined(__AVX__)
  static constexpr int64_t kRegisterLanes = 8;
#else
  static constexpr int64_t kRegisterLanes = 4;
#endif
  typedef float Register __attribute__((vector_size(kRegisterLanes * sizeof(float))));
  static constexpr int kRegisters = 2;  // side by side, of B and of each row of C
  SENNIT_INLINE static Register get(const float* p) {
    Register x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }

  template <int kRowsHere>
  SENNIT_INLINE static void tile(float* c, const float* a, const float* b, int64_t n, int64_t k,
                                 int64_t a_k, bool accumulate) {
    Register sum[kRowsHere][kRegisters] = {};
    for (int64_t depth = 0; depth < k; depth++) {
      Register line[kRegisters];
      for (int v = 0; v < kRegisters; v++) line[v] = get(b + depth * n + v * kRegisterLanes);
      for (int r = 0; r < kRowsHere; r++)
        for (int v = 0; v < kRegisters; v++) sum[r][v] += line[v] * a[r * a_k + depth];
    }
    for (int r = 0; r < kRowsHere; r++)
      for (int v = 0; v < kRegisters; v++) {
        float* to = c + r * n + v * kRegisterLanes;
        if (accumulate) sum[r][v] += get(to);
        std::memcpy(to, &sum[r][v], sizeof(Register));
      }
  }
  // c[m][n] (+)= a[m][k] * b[k][n], a in rows of a_k
  static void multiply(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k,
                       int64_t a_k, bool accumulate) {
    for (int64_t j = 0; j < n; j += kRegisters * kRegisterLanes) {
      int64_t r = 0;
      for (; r + 6 <= m; r += 6) tile<6>(c + r * n + j, a + r * a_k, b + j, n, k, a_k, accumulate);
      for (; r < m; r++) tile<1>(c + r * n + j, a + r * a_k, b + j, n, k, a_k, accumulate);
    }
  }
};

}  // namespace
}  // namespace sennit::trainer
