// multiply.cpp: one block of a matrix product on AMX (see
// trainer/device/cpu/amx/kernels.hpp, trainer/device/cpu/amx/tiles.hpp).
//
// A's rows are packed, slice by slice of a long k, into the thread's scratch,
// which stays in the second cache, while B's columns, two tiles wide, pass
// through the first. Sums of 32 x 32 stay in scratch, tile by tile, until all
// of k is in them; then their rows are rounded and written to c while the next
// products are computed. The memory that comes next is asked for at the same
// time, because the processor waits 100 ns for what is in neither cache. The
// slices depend on k alone.
#if defined(__x86_64__)
#ifndef __clang__  // g++ 12 warns about its own _mm512_undefined_epi32 (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trainer/device/cpu/amx/kernels.hpp"
#include "trainer/device/cpu/amx/tiles.hpp"

namespace sennit::trainer {
namespace {

constexpr int64_t kSlice = 1024, kWhole = 2048;  // k up to kWhole is one slice

constexpr int64_t kSums = kPair * kPair;  // elements of a block of sums
constexpr int64_t kLine = 64;             // bytes of a cache line
constexpr int64_t kRowsAtOnce = 2;        // rows of c that are written beside a step of products
constexpr size_t kFar = size_t{4} << 20;  // bytes from which on c is not in a cache
// Tiles along k: so much of B stays in the first cache while all of A's rows pass.
constexpr int64_t kNear = 16;
// Sums lie tile by tile: elements between rows of a tile, between tiles side by side, and between
// those one below the other.
constexpr int64_t kSumsRow = 16, kSumsRight = 256, kSumsBelow = 512;

int64_t slice_of(int64_t k) { return k > kWhole ? kSlice : k; }

// Adds to tiles 0 ... 3 a pair of A by a pair of B, over `depths` tiles along
// k. A's tiles are loaded past the first cache, which belongs to B.
// chore(depth) is what the processor's other units do meanwhile. It must be
// little at a time, so that the processor sees the next products behind it.
template <typename Chore>
inline void add_products(const Half* a, const Half* b, int64_t depths, Chore chore) {
  for (int64_t depth = 0; depth < depths; depth++, a += kPairElements, b += kPairElements) {
    _tile_stream_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileElements, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_stream_loadd(5, a + kTileElements, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    chore(depth);
  }
}

// 32 x 32 sums, in four tiles, that are not in c yet.
struct Ready {
  const float* sums = nullptr;
  Matrix c;                    // its part
  int64_t next = 0, rows = 0;  // rows [next, rows) are not written
  bool accumulate = false;
  bool past_caches = false;  // whole lines of c are written without being read first
};

inline void write_row(const Ready& r) {
  const int64_t i = r.next;
  const auto left_mask = static_cast<__mmask16>(low_bits(r.c.columns));
  const auto right_mask = static_cast<__mmask16>(low_bits(r.c.columns - 16));
  const float* line = r.sums + i / kTileRows * kSumsBelow + i % kTileRows * kSumsRow;
  __m512 left = _mm512_load_ps(line), right = _mm512_load_ps(line + kSumsRight);
  if (r.c.type == Type::f32) {
    float* c = r.c.f32() + i * r.c.stride;
    if (r.accumulate) {
      left = _mm512_add_ps(left, _mm512_maskz_loadu_ps(left_mask, c));
      right = _mm512_add_ps(right, _mm512_maskz_loadu_ps(right_mask, c + 16));
    }
    _mm512_mask_storeu_ps(c, left_mask, left);
    _mm512_mask_storeu_ps(c + 16, right_mask, right);
    return;
  }
  Half* c = r.c.bf16() + i * r.c.stride;
  const __mmask32 mask = low_bits(r.c.columns);
  if (r.accumulate) {
    const __m512i before = _mm512_maskz_loadu_epi16(mask, c);
    const auto widen = [](__m256i half) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    };
    left = _mm512_add_ps(left, widen(_mm512_castsi512_si256(before)));
    right = _mm512_add_ps(right, widen(_mm512_extracti64x4_epi64(before, 1)));
  }
  const __m512bh both = _mm512_cvtne2ps_pbh(right, left);
  __m512i bits;
  std::memcpy(&bits, &both, sizeof bits);
  if (r.past_caches && r.c.columns == kPair)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(c), bits);
  else
    _mm512_mask_storeu_epi16(c, mask, bits);
}
// The next rows of them, at most so many.
inline void write_rows(Ready& r, int64_t most) {
  for (; most > 0 && r.next < r.rows; most--, r.next++) write_row(r);
}

// Memory that is asked for some lines at a time.
struct Fetch {
  const char* next = nullptr;
  int64_t left = 0;  // lines
  void some(int64_t most) {
    for (; most > 0 && left > 0; most--) {
      _mm_prefetch(next, _MM_HINT_T1);
      next += kLine;
      left--;
    }
  }
};

// What is done beside the products of a pair of A's rows with a piece of B, some of it at each
// depth. Finished sums are written, and memory is asked for that the next products will need.
struct Beside {
  Ready* ready = nullptr;      // sums that are finished
  Fetch* b = nullptr;          // the next piece of B
  int64_t b_lines = 0;         // of it, at each depth
  const char* sums = nullptr;  // of the next rows so far; null: they begin at zero
  int64_t sum_lines = 0;       // of them, at each depth
  Matrix c;                    // of the next sums; no rows: it need not be asked for

  void operator()(int64_t depth) const {
    b->some(b_lines);
    write_rows(*ready, kRowsAtOnce);
    if (sums) {
      const char* line = sums + depth * sum_lines * kLine;
      for (int64_t n = 0; n < sum_lines; n++, line += kLine) __builtin_prefetch(line, 1);
    }
    const int64_t first = depth * kRowsAtOnce;
    for (int64_t row = first; row < first + kRowsAtOnce && row < c.rows; row++) {
      const auto* line = static_cast<const char*>(c.data) +
                         row * c.stride * static_cast<int64_t>(bytes_of(c.type));
      __builtin_prefetch(line, 1);
      if (c.type == Type::f32) __builtin_prefetch(line + kLine, 1);
    }
  }
};

// What there is of c's 32 x 32 elements from (row, column) on, where a block has so many rows and
// columns left.
inline Matrix part_of(const Matrix& c, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  Matrix part = c;
  part.data =
      static_cast<char*>(c.data) + static_cast<size_t>(row * c.stride + column) * bytes_of(c.type);
  part.rows = rows < kPair ? rows : kPair;
  part.columns = columns < kPair ? columns : kPair;
  return part;
}

// Where c is far larger than the caches and whole lines of it are written, they are written without
// being read first.
inline bool goes_past_caches(const AmxProduct& p) {
  return p.c.type == Type::bf16 && !p.accumulate && p.c.stride % kPair == 0 &&
         reinterpret_cast<uintptr_t>(p.c.data) % 64 == 0 && p.c.bytes() >= kFar;
}

}  // namespace

bool has_amx() {
  static const bool kHas = [] {
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAvx512Bf16 = 1u << 5;
    if (!(d & kAmxBf16) || !(d & kAmxTile) || !__get_cpuid_count(7, 1, &a, &b, &c, &d) ||
        !(a & kAvx512Bf16))
      return false;
    constexpr int kRequestState = 0x1023, kTileData = 18;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") &&
           syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
  }();
  return kHas;
}

size_t amx_packed_bytes(int64_t columns, int64_t k) {
  return static_cast<size_t>(pairs_of(columns) * depths_of(k) * kPairElements) * sizeof(Half);
}
size_t amx_scratch_bytes(int64_t rows, int64_t columns, int64_t k) {
  const int64_t kept = (k > kWhole ? pairs_of(columns) : 1) * pairs_of(rows);
  return amx_packed_bytes(rows, slice_of(k)) +
         static_cast<size_t>((kept + 2) * kSums) * sizeof(float);
}

void amx_pack(const AmxProduct& p, void* packed, int64_t first_column, int64_t columns,
              int64_t first_k, int64_t k) {
  const int64_t offset =
      p.transpose_b ? first_column * p.b.stride + first_k : first_k * p.b.stride + first_column;
  const int64_t apart = depths_of(p.k), place = first_column / kPair * apart + first_k / kTileDepth;
  pack_b(static_cast<Half*>(packed) + place * kPairElements, apart, p.b.bf16() + offset, p.b.stride,
         p.transpose_b, k, columns);
}

void amx_multiply(const AmxProduct& p, const void* packed, int64_t first_row, int64_t rows,
                  int64_t first_column, int64_t columns, void* scratch) {
  const Tiles tiles;
  const int64_t slice = slice_of(p.k), column_stride = depths_of(p.k) * kPairElements,
                row_pairs = pairs_of(rows);
  // Two blocks of finished sums: one is written to c while the other is filled.
  auto* waiting = static_cast<float*>(scratch);
  float* panel = waiting + 2 * kSums;
  Half* a =
      reinterpret_cast<Half*>(panel + (p.k > slice ? pairs_of(columns) : 1) * row_pairs * kSums);
  const auto part_of_c = [&](int64_t i, int64_t j) {
    return part_of(p.c, first_row + i, first_column + j, rows - i, columns - j);
  };
  const bool past_caches = goes_past_caches(p);
  Ready ready;
  int64_t turn = 0;
  for (int64_t begin = 0; begin == 0 || begin < p.k; begin += slice) {
    const int64_t k = p.k - begin < slice ? p.k - begin : slice, depths = depths_of(k);
    pack_a(a,
           p.a.bf16() +
               (p.transpose_a ? begin * p.a.stride + first_row : first_row * p.a.stride + begin),
           p.a.stride, p.transpose_a, rows, k);
    // B's pairs of columns are taken in pieces along k, each of which stays in
    // the first cache while all of A's rows pass.
    const int64_t pieces = (depths + kNear - 1) / kNear,
                  piece = depths ? (depths + pieces - 1) / pieces : 1;
    const auto b_at = [&](int64_t column, int64_t depth) {
      return static_cast<const Half*>(packed) + (first_column + column) / kPair * column_stride +
             (begin / kTileDepth + depth) * kPairElements;
    };
    for (int64_t j = 0; j < columns; j += kPair)
      for (int64_t done = 0; done == 0 || done < depths; done += piece) {
        const int64_t near = depths - done < piece ? depths - done : piece;
        const bool finish = done + near >= depths, last = finish && begin + slice >= p.k;
        // The piece of B after this one is brought nearer while this one is multiplied.
        const int64_t next_column = finish ? j + kPair : j, next_depth = finish ? 0 : done + near;
        Fetch fetch;
        if (next_column < columns)
          fetch = {reinterpret_cast<const char*>(b_at(next_column, next_depth)),
                   (depths - next_depth < piece ? depths - next_depth : piece) * kPair};
        const int64_t fetch_lines = (kPair + row_pairs - 1) / row_pairs;
        for (int64_t i = 0; i < rows; i += kPair) {
          float* sums = panel + ((p.k > slice ? j / kPair * row_pairs : 0) + i / kPair) * kSums;
          const bool below = i + kPair < rows;
          const bool summed = begin > 0 || done > 0;
          if (summed)
            load_sums(sums, kSumsRow, kSumsRight, kSumsBelow);
          else
            zero_sums();
          const int64_t next_i = below ? i + kPair : 0, next_j = below ? j : j + kPair;
          Beside beside{.ready = &ready, .b = &fetch, .b_lines = fetch_lines, .c = {}};
          if (below && summed) beside.sums = reinterpret_cast<const char*>(sums + kSums);
          if (near > 0) beside.sum_lines = (2 * kPair + near - 1) / near;
          if (last && next_j < columns && !past_caches) beside.c = part_of_c(next_i, next_j);
          add_products(a + (i / kPair * depths + done) * kPairElements, b_at(j, done), near,
                       beside);
          write_rows(ready, kPair);
          if (!last) {
            store_sums(sums, kSumsRow, kSumsRight, kSumsBelow);
            continue;
          }
          float* const out = waiting + turn * kSums;
          turn = 1 - turn;
          store_sums(out, kSumsRow, kSumsRight, kSumsBelow);
          ready = {out,          part_of_c(i, j), 0, rows - i < kPair ? rows - i : kPair,
                   p.accumulate, past_caches};
        }
      }
  }
  write_rows(ready, kPair);
  if (past_caches) _mm_sfence();
}

}  // namespace sennit::trainer
#else
// On other processors there is no AMX, and nothing else here is called.
#include "trainer/device/cpu/amx/kernels.hpp"

namespace sennit::trainer {
bool has_amx() { return false; }
size_t amx_packed_bytes(int64_t, int64_t) { return 0; }
size_t amx_scratch_bytes(int64_t, int64_t, int64_t) { return 0; }
void amx_pack(const AmxProduct&, void*, int64_t, int64_t, int64_t, int64_t) {}
void amx_multiply(const AmxProduct&, const void*, int64_t, int64_t, int64_t, int64_t, void*) {}
}  // namespace sennit::trainer
#endif
