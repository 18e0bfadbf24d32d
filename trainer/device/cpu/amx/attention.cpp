// attention.cpp: attention of one head on AMX: the engine of
// trainer/device/cpu/kernels/attention.hpp whose operands are pairs of bf16 tiles
// (trainer/device/cpu/amx/tiles.hpp). Weights and slopes are rounded to bf16, sums are f32.
#if defined(__x86_64__)
#ifndef __clang__  // g++ 12 warns about its own _mm512_undefined_epi32 (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "trainer/device/cpu/amx/kernels.hpp"
#include "trainer/device/cpu/amx/tiles.hpp"
#include "trainer/device/cpu/kernels/attention_gradient.hpp"

namespace sennit::trainer {
namespace {

struct EngineAmx {
  using Element = Half;
  static constexpr int64_t kUnit = 32;
  static constexpr int64_t kProductUnit = kUnit;

  static void pack_a(Half* to, const void* from, Type, int64_t stride, bool turned, int64_t m,
                     int64_t k) {
    trainer::pack_a(to, static_cast<const Half*>(from), stride, turned, m, k);
  }
  static void pack_b(Half* to, const void* from, Type, int64_t stride, bool turned, int64_t k,
                     int64_t n) {
    trainer::pack_b(to, depths_of(k), static_cast<const Half*>(from), stride, turned, k, n);
  }
  // 16 low values and 16 high ones, rounded, in this order.
  SENNIT_INLINE static __m512i both(Vec low, Vec high) {
    return bits_as<__m512i>(_mm512_cvtne2ps_pbh(bits_as<__m512>(high), bits_as<__m512>(low)));
  }
  SENNIT_INLINE static void put_a(Half* to, int64_t /*rows*/, int64_t columns, int64_t row,
                                  int64_t column, const Vec (&x)[2][2]) {
    Half* tile = to + (row / kPair * (columns / kTileDepth) + column / kTileDepth) * kPairElements +
                 row % kPair / kTileRows * kTileElements + row % kTileRows * kTileDepth;
    _mm512_store_si512(tile, both(x[0][0], x[0][1]));
    _mm512_store_si512(tile + kTileDepth, both(x[1][0], x[1][1]));
  }
  SENNIT_INLINE static void put_b(Half* to, int64_t rows, int64_t /*columns*/, int64_t row,
                                  int64_t column, const Vec (&x)[2][2]) {
    alignas(64) static constexpr Half kSideBySide[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                         21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                         11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i order = _mm512_load_si512(kSideBySide);
    Half* tile = to + (column / kPair * (rows / kTileDepth) + row / kTileDepth) * kPairElements +
                 row % kTileDepth / 2 * kTileDepth;
    _mm512_store_si512(tile, _mm512_permutexvar_epi16(order, both(x[0][0], x[1][0])));
    _mm512_store_si512(tile + kTileElements,
                       _mm512_permutexvar_epi16(order, both(x[0][1], x[1][1])));
  }
  static void turn(float* to, const float* from, int64_t stride) {
    __m512i line[16];
    for (int i = 0; i < 16; i++) line[i] = _mm512_loadu_si512(from + i * stride);
    turn_words(line);
    for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * 16, line[i]);
  }
  static void multiply(float* c, const Half* a, const Half* b, int64_t m, int64_t n, int64_t k,
                       int64_t a_k, bool accumulate) {
    const int64_t depths = k / kTileDepth;
    for (int64_t j = 0; j < n; j += kPair)
      for (int64_t i = 0; i < m; i += kPair) {
        float* to = c + i * n + j;
        if (accumulate)
          load_sums(to, n, 16, 16 * n);
        else
          zero_sums();
        add_products(a + i / kPair * (a_k / kTileDepth) * kPairElements,
                     b + j / kPair * depths * kPairElements, depths);
        store_sums(to, n, 16, 16 * n);
      }
  }
};

}  // namespace

void amx_attention(const AttentionCall& call, int64_t sequence, int64_t kv_head, int64_t first,
                   int64_t count, CpuScratch& scratch) {
  const Tiles tiles;
  attention_of_head<EngineAmx>(call, sequence, kv_head, first, count, scratch);
}

void amx_attention_gradient(const AttentionCall& call, int64_t sequence, int64_t kv_head,
                            CpuScratch& scratch) {
  const Tiles tiles;
  attention_gradient_of_head<EngineAmx>(call, sequence, kv_head, scratch);
}

}  // namespace sennit::trainer
#else
#include "trainer/device/cpu/amx/kernels.hpp"

namespace sennit::trainer {  // never called: has_amx() is false
void amx_attention(const AttentionCall&, int64_t, int64_t, int64_t, int64_t, CpuScratch&) {}
void amx_attention_gradient(const AttentionCall&, int64_t, int64_t, CpuScratch&) {}
}  // namespace sennit::trainer
#endif
