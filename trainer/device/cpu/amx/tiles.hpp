// tiles.hpp: bf16 matrix products on Intel's AMX tiles, for this folder's sources, which alone
// are compiled with AMX and AVX-512.
//
// A tile is 16 rows of 64 bytes. One instruction adds A (16 rows x 32 bf16) * B (32 x 16) to C (16
// x 16 f32), where B holds pairs of rows side by side: its row r is (b[2r][0], b[2r+1][0],
// b[2r][1], ...). A and B are packed into such tiles, edges filled with zeros; C is taken two by
// two tiles at a time, which needs four tile loads for four products. Sums run along k in steps of
// 32 in one order, whatever m and n.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace sennit::trainer {
namespace {

constexpr int64_t kTileRows = 16, kTileDepth = 32, kTileElements = kTileRows * kTileDepth;
constexpr int kTileRegisters = 8, kTileRowBytes = 64;
using Half = uint16_t;

// Tile registers 0 ... 7, all of full size, for as long as this lives.
class Tiles {
 public:
  Tiles() {
    alignas(64) Configuration all;
    for (int i = 0; i < kTileRegisters; i++) {
      all.bytes_a_row[i] = kTileRowBytes;
      all.rows[i] = kTileRows;
    }
    asm volatile("" : : "m"(all));  // g++ 12 takes the intrinsic to read 8 bytes alone
    _tile_loadconfig(&all);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  struct Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_a_row[16] = {};
    uint8_t rows[16] = {};
  };
};

// The low `count` bits, for masked loads.
inline uint32_t low_bits(int64_t count) {
  return count >= 32 ? ~0u : count <= 0 ? 0u : (1u << count) - 1;
}

// 16 lines of 16 words: word j of line i becomes word i of line j.
inline void turn_words(__m512i line[16]) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(line[i], line[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(line[i], line[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    const __m512i low = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88),
                  high = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xdd);
    line[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
    line[i + 8] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    line[i + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
    line[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
}

// Up to 16 rows of up to 32 elements, as they lie.
inline void read_rows(__m512i line[16], const Half* from, int64_t stride, int64_t rows,
                      int64_t columns) {
  const __mmask32 mask = low_bits(columns);
  for (int i = 0; i < 16; i++)
    line[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * stride) : _mm512_setzero_si512();
}
// Up to 32 rows of up to 16 elements, rows 2r and 2r + 1 side by side in line r.
inline void read_pairs(__m512i line[16], const Half* from, int64_t stride, int64_t rows,
                       int64_t columns) {
  const auto mask = static_cast<__mmask16>(low_bits(columns));
  for (int i = 0; i < 16; i++) {
    const __m512i even =
        2 * i < rows ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + 2 * i * stride))
                     : _mm512_setzero_si512();
    const __m512i odd =
        2 * i + 1 < rows
            ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + (2 * i + 1) * stride))
            : _mm512_setzero_si512();
    line[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  }
}
inline void write_tile(Half* to, const __m512i line[16]) {
  for (int i = 0; i < 16; i++) _mm512_store_si512(to + i * 32, line[i]);
}

// Pieces of 16 bytes out of four rows, one a quarter.
inline __m512i read_quarters(const Half* from, int64_t step) {
  const auto piece = [&](int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * step));
  };
  __m512i all = _mm512_castsi128_si512(piece(0));
  all = _mm512_inserti32x4(all, piece(1), 1);
  all = _mm512_inserti32x4(all, piece(2), 2);
  return _mm512_inserti32x4(all, piece(3), 3);
}
// 16 columns of 32 rows become 16 lines. Rows 8 apart share a line, so that nothing crosses its
// quarters.
inline void turn_halves(Half* to, const Half* from, int64_t stride) {
  for (int64_t column = 0; column < 16; column += 8) {
    __m512i a[8], b[8], c[8];
    for (int64_t i = 0; i < 8; i++) a[i] = read_quarters(from + i * stride + column, 8 * stride);
    for (int i = 0; i < 4; i++) {
      b[2 * i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
      b[2 * i + 1] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    for (int half = 0; half < 2; half++)
      for (int i = 0; i < 2; i++) {
        c[4 * half + 2 * i] = _mm512_unpacklo_epi32(b[4 * half + i], b[4 * half + 2 + i]);
        c[4 * half + 2 * i + 1] = _mm512_unpackhi_epi32(b[4 * half + i], b[4 * half + 2 + i]);
      }
    for (int i = 0; i < 4; i++) {
      _mm512_store_si512(to + (column + 2 * i) * kTileDepth, _mm512_unpacklo_epi64(c[i], c[4 + i]));
      _mm512_store_si512(to + (column + 2 * i + 1) * kTileDepth,
                         _mm512_unpackhi_epi64(c[i], c[4 + i]));
    }
  }
}
// 16 rows of 16 words become 16 lines of a column each. Rows 4 apart share a line.
inline void turn_rows(Half* to, const Half* from, int64_t stride) {
  for (int64_t word = 0; word < 16; word += 4) {
    __m512i a[4], b[4];
    for (int64_t i = 0; i < 4; i++) a[i] = read_quarters(from + i * stride + 2 * word, 4 * stride);
    b[0] = _mm512_unpacklo_epi32(a[0], a[1]);
    b[1] = _mm512_unpackhi_epi32(a[0], a[1]);
    b[2] = _mm512_unpacklo_epi32(a[2], a[3]);
    b[3] = _mm512_unpackhi_epi32(a[2], a[3]);
    Half* line = to + word * kTileDepth;
    _mm512_store_si512(line, _mm512_unpacklo_epi64(b[0], b[2]));
    _mm512_store_si512(line + kTileDepth, _mm512_unpackhi_epi64(b[0], b[2]));
    _mm512_store_si512(line + 2 * kTileDepth, _mm512_unpacklo_epi64(b[1], b[3]));
    _mm512_store_si512(line + 3 * kTileDepth, _mm512_unpackhi_epi64(b[1], b[3]));
  }
}

// One tile of A or B out of a row-major matrix. `rows` and `columns` are what is left of the
// operand from this tile on: A has rows m and columns k, B rows k and columns n; turned: the matrix
// holds the operand's transpose.
inline void pack_tile_a(Half* to, const Half* from, int64_t stride, bool turned, int64_t rows,
                        int64_t columns) {
  if (turned && rows >= kTileRows && columns >= kTileDepth) return turn_halves(to, from, stride);
  __m512i line[16];
  if (turned) {
    read_pairs(line, from, stride, columns, rows);
    turn_words(line);
  } else {
    read_rows(line, from, stride, rows, columns);
  }
  write_tile(to, line);
}
inline void pack_tile_b(Half* to, const Half* from, int64_t stride, bool turned, int64_t rows,
                        int64_t columns) {
  if (turned && rows >= kTileDepth && columns >= kTileRows) return turn_rows(to, from, stride);
  __m512i line[16];
  if (turned) {
    read_rows(line, from, stride, columns, rows);
    turn_words(line);
  } else {
    read_pairs(line, from, stride, rows, columns);
  }
  write_tile(to, line);
}
// All tiles of m x k of A (k x n of B), by pairs: for each 32 rows (columns), and along k, the tile
// of the first 16, then that of the others, so that a product reads two streams from end to end. A
// pair lies `apart` pairs after the one of the 32 rows (columns) before.
constexpr int64_t kPair = 32, kPairElements = 2 * kTileElements;
inline int64_t pairs_of(int64_t n) { return (n + kPair - 1) / kPair; }
inline int64_t depths_of(int64_t k) { return (k + kTileDepth - 1) / kTileDepth; }
// Memory is read along its rows, 32 of them at a time: where they run along k, all of k for 32
// rows, else all m (n) for 32 rows. That is more streams than the processor follows by itself, so
// what comes next is asked for early.
template <typename PackTile>
inline void pack_pairs(Half* to, int64_t apart, const Half* from, int64_t stride, bool rows_along_k,
                       int64_t m, int64_t k, PackTile pack_tile) {
  const int64_t depths = depths_of(k), pairs = pairs_of(m);
  for (int64_t tile = 0; tile < pairs * depths; tile++) {
    const int64_t pair = rows_along_k ? tile / depths : tile % pairs;
    const int64_t at = rows_along_k ? tile % depths : tile / pairs;
    const int64_t depth = at * kTileDepth, first = pair * kPair;
    const Half* next = rows_along_k ? from + first * stride + depth + 4 * kTileDepth
                                    : from + (depth + kTileDepth) * stride + first;
    if (rows_along_k ? depth + 4 * kTileDepth < k : depth + 2 * kTileDepth <= k)
      for (int64_t row = 0; row < kPair && (!rows_along_k || first + row < m); row++)
        _mm_prefetch(next + row * stride, _MM_HINT_T0);
    Half* place = to + (pair * apart + at) * kPairElements;
    for (int64_t i = first; i < first + kPair; i += kTileRows, place += kTileElements)
      pack_tile(place, from + (rows_along_k ? i * stride + depth : depth * stride + i), i, depth);
  }
}
inline void pack_a(Half* to, const Half* from, int64_t stride, bool turned, int64_t m, int64_t k) {
  pack_pairs(to, depths_of(k), from, stride, !turned, m, k,
             [&](Half* place, const Half* tile, int64_t i, int64_t depth) {
               pack_tile_a(place, tile, stride, turned, m - i, k - depth);
             });
}
inline void pack_b(Half* to, int64_t apart, const Half* from, int64_t stride, bool turned,
                   int64_t k, int64_t n) {
  pack_pairs(to, apart, from, stride, turned, n, k,
             [&](Half* place, const Half* tile, int64_t j, int64_t depth) {
               pack_tile_b(place, tile, stride, turned, k - depth, n - j);
             });
}

// Tiles 0 ... 3 += a pair of A by a pair of B, over `depths` tiles along k.
inline void add_products(const Half* a, const Half* b, int64_t depths) {
  for (; depths > 0; depths--, a += kPairElements, b += kPairElements) {
    _tile_loadd(4, a, kTileRowBytes);
    _tile_loadd(6, b, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileElements, kTileRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileElements, kTileRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// The four sums in tiles 0 ... 3: `right` and `below` lead to the other columns and rows.
inline void load_sums(const float* c, int64_t stride, int64_t right, int64_t below) {
  const auto bytes = static_cast<int>(stride * 4);
  _tile_loadd(0, c, bytes);
  _tile_loadd(1, c + right, bytes);
  _tile_loadd(2, c + below, bytes);
  _tile_loadd(3, c + below + right, bytes);
}
inline void store_sums(float* c, int64_t stride, int64_t right, int64_t below) {
  const auto bytes = static_cast<int>(stride * 4);
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + right, bytes);
  _tile_stored(2, c + below, bytes);
  _tile_stored(3, c + below + right, bytes);
}
inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

}  // namespace
}  // namespace sennit::trainer
