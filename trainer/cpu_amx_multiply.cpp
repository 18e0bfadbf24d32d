// cpu_amx_multiply.cpp: one block of a matrix product on AMX (see cpu_amx_kernels.hpp, cpu_amx.hpp).
//
// A's rows are packed k by k slice into the thread's scratch, which stays in the second cache, while B's
// columns, two tiles wide, pass through the first. A long k is taken in slices; between them an f32 c holds
// the sums itself, for a bf16 c they are kept in scratch and rounded once. The slices depend on k alone.
#if defined(__x86_64__)
#ifndef __clang__  // g++ 12 warns about its own _mm512_undefined_epi32 (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu_amx.hpp"
#include "cpu_amx_kernels.hpp"

namespace sennit::trainer {
namespace {

constexpr int64_t kSlice = 1024, kWhole = 2048;  // k up to kWhole is one slice

constexpr int64_t kNear = 8;  // tiles along k: what of B stays in the first cache while A's rows pass

int64_t slice_of(int64_t k) { return k > kWhole ? kSlice : k; }

// 32 x 32 sums, in four tiles of `sums`, to c: `rows` x `columns` of them; with what was `gathered` before,
// if any.
void write_bf16(const float* sums, const float* gathered, int64_t gathered_stride, Half* c, int64_t stride,
                int64_t rows, int64_t columns, bool accumulate) {
  const __mmask32 mask = low_bits(columns);
  const auto left_mask = static_cast<__mmask16>(low_bits(columns));
  const auto right_mask = static_cast<__mmask16>(low_bits(columns - 16));
  for (int64_t i = 0; i < rows; i++) {
    const float* line = sums + i / 16 * 512 + i % 16 * 16;
    __m512 left = _mm512_load_ps(line), right = _mm512_load_ps(line + 256);
    if (gathered) {
      left = _mm512_add_ps(left, _mm512_maskz_loadu_ps(left_mask, gathered + i * gathered_stride));
      right = _mm512_add_ps(right, _mm512_maskz_loadu_ps(right_mask, gathered + i * gathered_stride + 16));
    }
    if (accumulate) {
      const __m512i before = _mm512_maskz_loadu_epi16(mask, c + i * stride);
      const auto widen = [](__m256i half) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
      };
      left = _mm512_add_ps(left, widen(_mm512_castsi512_si256(before)));
      right = _mm512_add_ps(right, widen(_mm512_extracti64x4_epi64(before, 1)));
    }
    const __m512bh both = _mm512_cvtne2ps_pbh(right, left);
    __m512i bits;
    std::memcpy(&bits, &both, sizeof bits);
    _mm512_mask_storeu_epi16(c + i * stride, mask, bits);
  }
}
void write_f32(const float* sums, float* c, int64_t stride, int64_t rows, int64_t columns, bool accumulate) {
  const auto left_mask = static_cast<__mmask16>(low_bits(columns));
  const auto right_mask = static_cast<__mmask16>(low_bits(columns - 16));
  for (int64_t i = 0; i < rows; i++) {
    const float* line = sums + i / 16 * 512 + i % 16 * 16;
    __m512 left = _mm512_load_ps(line), right = _mm512_load_ps(line + 256);
    if (accumulate) {
      left = _mm512_add_ps(left, _mm512_maskz_loadu_ps(left_mask, c + i * stride));
      right = _mm512_add_ps(right, _mm512_maskz_loadu_ps(right_mask, c + i * stride + 16));
    }
    _mm512_mask_storeu_ps(c + i * stride, left_mask, left);
    _mm512_mask_storeu_ps(c + i * stride + 16, right_mask, right);
  }
}

}  // namespace

bool has_amx() {
  static const bool kHas = [] {
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAvx512Bf16 = 1u << 5;
    if (!(d & kAmxBf16) || !(d & kAmxTile) || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & kAvx512Bf16))
      return false;
    constexpr int kRequestState = 0x1023, kTileData = 18;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
  }();
  return kHas;
}

size_t amx_packed_bytes(int64_t columns, int64_t k) {
  return static_cast<size_t>(pairs_of(columns) * depths_of(k) * kPairElements) * sizeof(Half);
}
size_t amx_scratch_bytes(int64_t rows, int64_t columns, int64_t k) {
  const int64_t gathered = k > kWhole ? rows * columns : 0;
  return amx_packed_bytes(rows, slice_of(k)) +
         static_cast<size_t>(pairs_of(rows) * 1024 + gathered) * sizeof(float);
}

void amx_pack_columns(const AmxProduct& p, void* packed, int64_t first_column, int64_t columns) {
  const int64_t offset = p.transpose_b ? first_column * p.b.stride : first_column;
  pack_b(static_cast<Half*>(packed) + first_column / kPair * depths_of(p.k) * kPairElements,
         p.b.bf16() + offset, p.b.stride, p.transpose_b, p.k, columns);
}

void amx_multiply(const AmxProduct& p, const void* packed, int64_t first_row, int64_t rows,
                  int64_t first_column, int64_t columns, void* scratch) {
  const Tiles tiles;
  const int64_t slice = slice_of(p.k), column_stride = depths_of(p.k) * kPairElements;
  auto* panel = static_cast<float*>(scratch);
  Half* a = reinterpret_cast<Half*>(panel + pairs_of(rows) * 1024);
  // Where the sums of the slices gather: c itself, or scratch behind the packed rows.
  const bool gather = p.c.type == Type::bf16 && p.k > kWhole;
  float* gathered = p.c.f32() + first_row * p.c.stride + first_column;
  int64_t gathered_stride = p.c.stride;
  if (gather) {
    gathered = reinterpret_cast<float*>(a + pairs_of(rows) * depths_of(slice) * kPairElements);
    gathered_stride = columns;
  }
  struct Ready {  // sums of 32 x 32 that are not in c yet
    const float* sums;
    float* c;
    int64_t row, column, height, width;
    bool last, add;
  } ready = {};
  const auto write = [&](const Ready& r) {
    if (!r.sums) return;
    if (p.c.type == Type::f32 || !r.last)
      write_f32(r.sums, r.c, gathered_stride, r.height, r.width, r.add);
    else
      write_bf16(r.sums, gather ? r.c : nullptr, gathered_stride, p.c.bf16() + r.row * p.c.stride + r.column,
                 p.c.stride, r.height, r.width, p.accumulate);
  };
  for (int64_t begin = 0; begin == 0 || begin < p.k; begin += slice) {
    const int64_t k = p.k - begin < slice ? p.k - begin : slice, depths = depths_of(k);
    const bool last = begin + slice >= p.k, add = (p.accumulate && !gather) || begin > 0;
    pack_a(a, p.a.bf16() + (p.transpose_a ? begin * p.a.stride + first_row : first_row * p.a.stride + begin),
           p.a.stride, p.transpose_a, rows, k);
    // B's pair of columns in pieces along k that stay in the first cache while all of A's rows pass.
    const int64_t pieces = (depths + kNear - 1) / kNear, piece = depths ? (depths + pieces - 1) / pieces : 1;
    for (int64_t j = 0; j < columns; j += kPair) {
      const Half* b = static_cast<const Half*>(packed) + (first_column + j) / kPair * column_stride +
                      begin / kTileDepth * kPairElements;
      const int64_t width = columns - j < kPair ? columns - j : kPair;
      for (int64_t done = 0; done == 0 || done < depths; done += piece) {
        const int64_t near = depths - done < piece ? depths - done : piece;
        const bool finish = done + near >= depths;
        for (int64_t i = 0; i < rows; i += kPair) {
          const int64_t height = rows - i < kPair ? rows - i : kPair;
          float* c = gathered + i * gathered_stride + j;  // written where c is f32, or sums gather
          const bool direct =
              (p.c.type == Type::f32 || (gather && !last)) && height == kPair && width == kPair;
          float* sums = panel + i * 32;
          if (done > 0)
            load_sums(sums, 16, 256, 512);
          else if (direct && add)
            load_sums(c, gathered_stride, 16, 16 * gathered_stride);
          else
            zero_sums();
          add_products(a + (i / kPair * depths + done) * kPairElements, b + done * kPairElements, near);
          write(ready);  // while these products run
          ready.sums = nullptr;
          if (finish && direct) {
            store_sums(c, gathered_stride, 16, 16 * gathered_stride);
            continue;
          }
          store_sums(sums, 16, 256, 512);
          if (finish) ready = {sums, c, first_row + i, first_column + j, height, width, last, add};
        }
      }
    }
    write(ready);  // the next slice may read it
    ready.sums = nullptr;
  }
}

}  // namespace sennit::trainer
#else
// On other processors there is no AMX, and nothing else here is called.
#include "cpu_amx_kernels.hpp"

namespace sennit::trainer {
bool has_amx() { return false; }
size_t amx_packed_bytes(int64_t, int64_t) { return 0; }
size_t amx_scratch_bytes(int64_t, int64_t, int64_t) { return 0; }
void amx_pack_columns(const AmxProduct&, void*, int64_t, int64_t) {}
void amx_multiply(const AmxProduct&, const void*, int64_t, int64_t, int64_t, int64_t, void*) {}
}  // namespace sennit::trainer
#endif
