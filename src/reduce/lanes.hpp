// lanes.hpp: how each element type is loaded into vector lanes, combined, and stored again.
//
// Part of reduce/kernels.hpp, compiled once per instruction set in an anonymous namespace. Narrow
// floats widen to fp32 lanes; the conversions are integer arithmetic that rounds to nearest even
// once, or F16C, which gives the same bits. Every NaN becomes the type's canonical quiet NaN before
// it is stored, because processors differ in which operand's payload survives an addition. fp8 e4m3
// has no infinity: overflow is NaN (OCP 8-bit floats, non-saturating).
#pragma once

#include <cstddef>
#include <cstdint>

#if SENNIT_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

namespace sennit {
namespace {

// The compilers' vector of so many bytes, with arithmetic lane by lane.
template <typename T, size_t bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes)));
};
inline constexpr size_t kVectorBytes = SENNIT_VECTOR_BYTES;
template <typename T>
using Vector = typename VectorOf<T, kVectorBytes>::type;
using F32 = Vector<float>;
using I32 = Vector<int32_t>;
using U32 = Vector<uint32_t>;

// A whole vector from memory and to memory of any alignment.
template <typename V>
inline V load_bytes(const char* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <typename V>
inline void store_bytes(char* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

// ---- integers: wrap, because the lanes are unsigned ----

// The type of the lanes that hold an integer type.
template <typename T>
struct UnsignedOf;
template <>
struct UnsignedOf<int8_t> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<uint8_t> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<uint32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};
template <>
struct UnsignedOf<uint64_t> {
  using type = uint64_t;
};

// Elements of an integer type. This and the floats below are what kernels are made for: each knows
// its lanes (V), the type that an average is divided by, how a whole vector is loaded and stored at
// any alignment, min, max and divide lane by lane, and what is canonical.
template <typename T>
struct Integer {
  using V = Vector<typename UnsignedOf<T>::type>;
  using Signed = Vector<T>;  // the type's own view, for comparisons and division
  using Divisor = uint64_t;
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr size_t kLanes = kVectorBytes / sizeof(T);
  static V load(const char* from) { return load_bytes<V>(from); }
  static void store(char* to, V v) { store_bytes(to, v); }
  static V min(V a, V b) {
    return reinterpret_cast<Signed>(a) < reinterpret_cast<Signed>(b) ? a : b;
  }
  static V max(V a, V b) {
    return reinterpret_cast<Signed>(a) > reinterpret_cast<Signed>(b) ? a : b;
  }
  // Truncates toward zero. Divisors are numbers of ranks, so they fit int64_t.
  static V divide(V v, uint64_t divisor) {
    auto lanes = reinterpret_cast<Signed>(v);
    for (size_t i = 0; i < kLanes; i++) {
      if constexpr (static_cast<T>(-1) < static_cast<T>(0))
        lanes[i] = static_cast<T>(static_cast<int64_t>(lanes[i]) / static_cast<int64_t>(divisor));
      else
        lanes[i] = static_cast<T>(static_cast<uint64_t>(lanes[i]) / divisor);
    }
    return reinterpret_cast<V>(lanes);
  }
  static V canonical(V v) { return v; }
};

// ---- floats ----

// Arithmetic on lanes of fp32 or fp64. min and max: NaN wins, -0 < +0; equal numbers differ at most
// in the sign of a zero, which `|` and `&` settle.
template <typename F, typename Bits, Bits nan_bits>
struct FloatLanes {
  using V = Vector<F>;
  using B = Vector<Bits>;
  using Divisor = F;
  static constexpr size_t kLanes = kVectorBytes / sizeof(F);
  static V nan() { return reinterpret_cast<V>(B{} + nan_bits); }
  static V min(V a, V b) {
    V r = a > b ? b : nan();
    r = a < b ? a : r;
    return a == b ? reinterpret_cast<V>(reinterpret_cast<B>(a) | reinterpret_cast<B>(b)) : r;
  }
  static V max(V a, V b) {
    V r = a < b ? b : nan();
    r = a > b ? a : r;
    return a == b ? reinterpret_cast<V>(reinterpret_cast<B>(a) & reinterpret_cast<B>(b)) : r;
  }
  static V divide(V v, F divisor) { return v / divisor; }
  static V canonical(V v) { return v == v ? v : nan(); }
};
using Fp32Lanes = FloatLanes<float, uint32_t, 0x7fc00000u>;
using Fp64Lanes = FloatLanes<double, uint64_t, 0x7ff8000000000000ull>;

// Floats that are what their lanes hold: nothing is converted.
struct Float32 : Fp32Lanes {
  static constexpr size_t kElementBytes = 4;
  static V load(const char* from) { return load_bytes<V>(from); }
  static void store(char* to, V v) { store_bytes(to, v); }
};
struct Float64 : Fp64Lanes {
  static constexpr size_t kElementBytes = 8;
  static V load(const char* from) { return load_bytes<V>(from); }
  static void store(char* to, V v) { store_bytes(to, v); }
};

// Elements of type S (uint8_t, uint16_t) to and from 32-bit lanes.
template <typename S>
struct Packed {
  using Narrow = typename VectorOf<S, Fp32Lanes::kLanes * sizeof(S)>::type;
  static U32 load(const char* from) {
#if SENNIT_VECTOR_BYTES == 64
    if constexpr (sizeof(S) == 2)
      return reinterpret_cast<U32>(
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
    else
      return reinterpret_cast<U32>(
          _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif SENNIT_VECTOR_BYTES == 32
    if constexpr (sizeof(S) == 2)
      return reinterpret_cast<U32>(
          _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
    else
      return reinterpret_cast<U32>(
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
    return __builtin_convertvector(load_bytes<Narrow>(from), U32);
#endif
  }
  static void store(char* to, U32 v) {
#if SENNIT_VECTOR_BYTES == 64
    if constexpr (sizeof(S) == 2)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(v)));
    else
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                       _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)));
#elif SENNIT_VECTOR_BYTES == 32
    // Lanes are below 2^16 (2^8), so saturating packs keep them.
    const __m256i wide = reinterpret_cast<__m256i>(v);
    const __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    if constexpr (sizeof(S) == 2)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), half);
    else
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(half, half));
#else
    store_bytes(to, __builtin_convertvector(v, Narrow));
#endif
  }
};

// The upper half of an fp32; what is stored is rounded to nearest even.
struct Bfloat16 : Fp32Lanes {
  static constexpr size_t kElementBytes = 2;
  static V load(const char* from) {
    return reinterpret_cast<V>(Packed<uint16_t>::load(from) << 16);
  }
  static void store(char* to, V v) {  // v is canonical: a NaN cannot overflow into the sign
    const U32 x = reinterpret_cast<U32>(v);
    Packed<uint16_t>::store(to, (x + 0x7fff + ((x >> 16) & 1)) >> 16);
  }
};

// A float of 1 + exponent_bits + mantissa_bits bits below fp32. Without `infinity` the highest code
// is the only NaN.
template <typename S, int exponent_bits, int mantissa_bits, bool infinity>
struct NarrowFloat : Fp32Lanes {
  static constexpr size_t kElementBytes = sizeof(S);
  static constexpr int kShift = 23 - mantissa_bits;
  static constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr uint32_t kSignBit = 1u << (exponent_bits + mantissa_bits);
  static constexpr uint32_t kExponentMask = ((1u << exponent_bits) - 1) << mantissa_bits;
  static constexpr uint32_t kNan =
      infinity ? kExponentMask | 1u << (mantissa_bits - 1) : kSignBit - 1;
  static constexpr uint32_t kOverflow = infinity ? kExponentMask : kNan;
  // First fp32 that is normal here, and the power of two whose last fp32 bit is the smallest
  // denormal: adding it rounds to a multiple of that.
  static constexpr uint32_t kLeastNormal = static_cast<uint32_t>(127 - kBias + 1) << 23;
  static constexpr uint32_t kRounder = static_cast<uint32_t>(127 - kBias + 1 + kShift) << 23;
  static constexpr float kLeastDenormal =
      1.0f / static_cast<float>(1ull << (kBias - 1 + mantissa_bits));

  static V load(const char* from) {
    const U32 x = Packed<S>::load(from);
    const U32 magnitude = x & (kSignBit - 1);
    const U32 sign = (x & kSignBit) << (31 - exponent_bits - mantissa_bits);
    const U32 normal = (magnitude << kShift) + kRebias;
    const U32 denormal = reinterpret_cast<U32>(
        __builtin_convertvector(reinterpret_cast<I32>(magnitude), V) * kLeastDenormal);
    U32 r = magnitude < (1u << mantissa_bits) ? denormal : normal;
    if constexpr (infinity)
      r = magnitude >= kExponentMask ? (magnitude << kShift) | 0x7f800000u : r;
    else
      r = magnitude == kNan ? U32{} + 0x7fc00000u : r;
    return reinterpret_cast<V>(r | sign);
  }

  static void store(char* to, V v) {
    const U32 x = reinterpret_cast<U32>(v);
    const U32 magnitude = x & 0x7fffffffu;
    const U32 sign = (x & 0x80000000u) >> (31 - exponent_bits - mantissa_bits);
    const U32 half = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1);
    const U32 normal = (magnitude + half - kRebias) >> kShift;
    const V rounder = reinterpret_cast<V>(U32{} + kRounder);
    const U32 denormal = reinterpret_cast<U32>(reinterpret_cast<V>(magnitude) + rounder) - kRounder;
    U32 r = magnitude < kLeastNormal ? denormal : (normal > kOverflow ? U32{} + kOverflow : normal);
    r = magnitude > 0x7f800000u ? U32{} + kNan : r;
    r |= sign;
    if constexpr (!infinity) r = (r & kNan) == kNan ? U32{} + kNan : r;
    Packed<S>::store(to, r);
  }
};
using Float8E4m3 = NarrowFloat<uint8_t, 4, 3, false>;
using Float8E5m2 = NarrowFloat<uint8_t, 5, 2, true>;

// IEEE's float of 16 bits: by the processor's conversions where it has them.
#if SENNIT_VECTOR_BYTES == 64
struct Float16 : Fp32Lanes {
  static constexpr size_t kElementBytes = 2;
  static V load(const char* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void store(char* to, V v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};
#elif SENNIT_VECTOR_BYTES == 32
struct Float16 : Fp32Lanes {
  static constexpr size_t kElementBytes = 2;
  static V load(const char* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(char* to, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
};
#else
using Float16 = NarrowFloat<uint16_t, 5, 10, true>;
#endif

}  // namespace
}  // namespace sennit
