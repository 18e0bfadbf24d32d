// vector.hpp: vectors of 16 floats for this folder's sources, which compile this text once per
// instruction set: loads and stores of f32 and bf16 (rounded to nearest even, a NaN stays one),
// sums in a fixed order, exp. Everything is in an anonymous namespace: no function here may be the
// same function in two of those files.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "trainer/device/cpu/kernels/kernels.hpp"

namespace sennit::trainer {
namespace {

constexpr int64_t kLanes = 16;
typedef float Vec __attribute__((vector_size(64)));
typedef int32_t IntVec __attribute__((vector_size(64)));
typedef uint32_t WordVec __attribute__((vector_size(64)));
typedef uint16_t HalfVec __attribute__((vector_size(32)));

// An element of bf16: the upper half of an f32.
struct Bf16 {
  uint16_t bits;
};

#define SENNIT_INLINE __attribute__((always_inline)) inline

// x in all 16 lanes; and the bits of a value as another type of the same size.
SENNIT_INLINE Vec splat(float x) { return Vec{} + x; }
template <typename To, typename From>
SENNIT_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// 16 elements from or to memory, aligned or not. What becomes bf16 is rounded to nearest even.
SENNIT_INLINE Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
SENNIT_INLINE Vec load(const Bf16* p) {
  HalfVec half;
  std::memcpy(&half, p, sizeof half);
  return bits_as<Vec>(__builtin_convertvector(half, WordVec) << 16);
}
SENNIT_INLINE void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
// The upper halves, rounded, still in the upper half's place.
SENNIT_INLINE WordVec rounded_words(Vec v) {
  const auto bits = bits_as<WordVec>(v);
  const WordVec rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const auto is_nan = bits_as<WordVec>((bits & 0x7fffffffu) > 0x7f800000u);
  return (is_nan & (bits | 0x00400000u)) | (~is_nan & rounded);
}
SENNIT_INLINE void store(Bf16* p, Vec v) {
#ifdef __AVX512BF16__
  const auto half = _mm512_cvtneps_pbh(bits_as<__m512>(v));  // a denormal becomes 0
#else
  const HalfVec half = __builtin_convertvector(rounded_words(v) >> 16, HalfVec);
#endif
  std::memcpy(p, &half, sizeof half);
}
// Calls body(pointer of the element type) for memory of `type`.
template <typename Body>
SENNIT_INLINE auto typed(void* p, Type type, Body body) {
  return type == Type::f32 ? body(static_cast<float*>(p)) : body(static_cast<Bf16*>(p));
}
template <typename Body>
SENNIT_INLINE auto typed(const void* p, Type type, Body body) {
  return type == Type::f32 ? body(static_cast<const float*>(p)) : body(static_cast<const Bf16*>(p));
}
// The last elements of a row, fewer than a vector: the rest of the vector is zero, and not written.
template <typename T>
SENNIT_INLINE Vec load_part(const T* p, int64_t count) {
  T padded[kLanes] = {};
  std::memcpy(padded, p, static_cast<size_t>(count % kLanes) * sizeof(T));
  return load(padded);
}
template <typename T>
SENNIT_INLINE void store_part(T* p, Vec v, int64_t count) {
  T padded[kLanes];
  store(padded, v);
  std::memcpy(p, padded, static_cast<size_t>(count % kLanes) * sizeof(T));
}

// Calls body(i, load, store) for every vector of n elements.
struct Whole {
  template <typename T>
  SENNIT_INLINE Vec get(const T* p) const {
    return load(p);
  }
  template <typename T>
  SENNIT_INLINE void put(T* p, Vec v) const {
    store(p, v);
  }
  SENNIT_INLINE Vec keep(Vec v, float) const { return v; }
};
struct FirstLanes {
  int64_t count;
  template <typename T>
  SENNIT_INLINE Vec get(const T* p) const {
    return load_part(p, count);
  }
  template <typename T>
  SENNIT_INLINE void put(T* p, Vec v) const {
    store_part(p, v, count);
  }
  // v with `other` in the lanes past the end.
  SENNIT_INLINE Vec keep(Vec v, float other) const {
    float lanes[kLanes];
    store(lanes, v);
    for (int64_t i = count; i < kLanes; i++) lanes[i] = other;
    return load(lanes);
  }
};
template <typename Body>
SENNIT_INLINE void each_vector(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, FirstLanes{n - i});
}

// b where either is no number
#ifdef __AVX512F__
SENNIT_INLINE Vec larger(Vec a, Vec b) {
  return bits_as<Vec>(_mm512_max_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
}
SENNIT_INLINE Vec smaller(Vec a, Vec b) {
  return bits_as<Vec>(_mm512_min_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
}
#else
SENNIT_INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }
SENNIT_INLINE Vec smaller(Vec a, Vec b) { return a < b ? a : b; }
#endif
// 1 / x for x in [1, 2^126], within 2 units in the last place; or, for what is rounded to bf16, for
// x >= 1 with an error of at most 2^-14 of it.
template <typename T>
SENNIT_INLINE Vec inverse_as(Vec x) {
#ifdef __AVX512F__
  const Vec near = bits_as<Vec>(_mm512_rcp14_ps(bits_as<__m512>(x)));
  return std::is_same_v<T, float> ? near * (2.0f - x * near) : near;
#else
  return 1.0f / x;
#endif
}
SENNIT_INLINE float sum_lanes(Vec v) {
  float x[kLanes];
  store(x, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x[i] += x[i + half];
  return x[0];
}
SENNIT_INLINE float largest_lane(Vec v) {
  float x[kLanes];
  store(x, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
  return x[0];
}

// e^x within 2 units in the last place: x = n ln 2 + r, a polynomial for e^r, n added to its
// exponent. Below -87 it is 0, above 88 it is e^88; a NaN stays one.
SENNIT_INLINE Vec exp_of(Vec x) {
  const Vec in = smaller(splat(88.0f), x);  // in this order a NaN passes
  // 1.5 * 2^23: adding it rounds to a whole number, in the lowest bits
  const Vec magic = splat(12582912.0f);
  const Vec shifted = in * 1.44269504088896341f + magic;
  const Vec n = shifted - magic;
  const Vec r = (in - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = splat(1.3981999507e-3f) + r * 1.9875691500e-4f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Vec result = bits_as<Vec>(bits_as<WordVec>(p) + (bits_as<WordVec>(shifted) << 23));
  return x < splat(-87.0f) ? Vec{} : result;
}

// e^(x * scale - shift) for what is rounded to bf16 in the end: off by some 2^-23 * (1 + |x *
// scale| + |shift|) of it, infinite above 88. 2^t = 2^floor(t) * 2^rest, a polynomial with an error
// of 1e-7.
constexpr float kLog2E = 1.44269504088896341f;
SENNIT_INLINE Vec exp_near(Vec x, float scale, Vec shift) {
#ifdef __AVX512DQ__
  constexpr int kFloor = 1;
  const Vec t = x * (scale * kLog2E) - shift * kLog2E;
  const auto rest = bits_as<Vec>(_mm512_reduce_ps(bits_as<__m512>(t), kFloor));
  Vec p = splat(8.98934e-3f) + rest * 1.8775767e-3f;
  p = p * rest + 5.5826318e-2f;
  p = p * rest + 2.4015361e-1f;
  p = p * rest + 6.931531e-1f;
  p = p * rest + 9.9999994e-1f;
  return bits_as<Vec>(_mm512_scalef_ps(bits_as<__m512>(p), bits_as<__m512>(t)));
#else
  return exp_of(x * scale - shift);
#endif
}
template <typename T>
SENNIT_INLINE Vec exp_as(Vec x, float scale, Vec shift) {
  if constexpr (std::is_same_v<T, float>)
    return exp_of(x * scale - shift);
  else
    return exp_near(x, scale, shift);
}

}  // namespace
}  // namespace sennit::trainer
