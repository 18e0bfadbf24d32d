// element.hpp: the arithmetic of reductions on single elements, for what cannot use the vectors of
// reduce/lanes.hpp: a GPU's kernel, and the tests' software GPU.
//
// Bit for bit what reduce() gives (reduce/reduce.hpp, which says what that is), on the processor
// and on a device alike. Compiled by nvcc as well, so it includes nothing that needs more than a C
// compiler. There it needs -fmad=false, because a product and a sum that are rounded once together
// are other bits; and no --use_fast_math, because that makes denormals zeros and divides roughly.
//
// Each type's tag says how the bits of an element become the number that is calculated with
// (widen) and back (narrow, of what finish() made). An operation on a pair of narrow floats has a
// short way on a device: its conversions take two at once, and round as ours do what is neither
// NaN nor out of range, which is put right afterwards.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "reduce/table.hpp"
#include "sennit/sennit.h"

#if defined(__CUDACC__)
#define SENNIT_BOTH __host__ __device__ __forceinline__
#define SENNIT_DIVIDE __host__ __device__ __noinline__  // a division is long on a device
#else
#define SENNIT_BOTH inline
#define SENNIT_DIVIDE inline
#endif

namespace sennit::element {

// The same bits as another type.
template <typename To, typename From>
SENNIT_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// The unsigned type of so many bytes: 1, 2, 4 or 8.
template <size_t bytes>
using BitsOf = std::conditional_t<
    bytes == 1, uint8_t,
    std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

// ---- integers: wrap, because they are calculated with unsigned ----

// Elements of an integer type.
template <typename T>
struct Integer {
  static constexpr size_t kBytes = sizeof(T);
  static constexpr bool kInteger = true;
  using Bits = BitsOf<kBytes>;
  using Accumulator = Bits;
  using Divisor = uint64_t;
  using AnySign = Integer<Bits>;  // the same where the sign does not matter
  static SENNIT_BOTH Accumulator widen(Bits x) { return x; }
  static SENNIT_BOTH Bits narrow(Accumulator x) { return x; }
  static SENNIT_BOTH Accumulator min(Accumulator a, Accumulator b) {
    return static_cast<T>(a) < static_cast<T>(b) ? a : b;
  }
  static SENNIT_BOTH Accumulator max(Accumulator a, Accumulator b) {
    return static_cast<T>(a) > static_cast<T>(b) ? a : b;
  }
  // Truncates toward zero. Divisors are numbers of ranks, so they fit int64_t.
  static SENNIT_DIVIDE Accumulator divide(Accumulator x, uint64_t divisor) {
    if constexpr (static_cast<T>(-1) < static_cast<T>(0))
      return static_cast<Bits>(static_cast<int64_t>(static_cast<T>(x)) /
                               static_cast<int64_t>(divisor));
    else
      return static_cast<Bits>(static_cast<uint64_t>(x) / divisor);
  }
  static SENNIT_BOTH Accumulator canonical(Accumulator x) { return x; }
};

// ---- floats ----

// Arithmetic of fp32 or fp64. NaN wins in min and max, -0 < +0; equal numbers differ at most in the
// sign of a zero, which `|` and `&` settle.
template <typename F, typename B, B nan_bits>
struct Float {
  static constexpr bool kInteger = false;
  using Accumulator = F;
  using Divisor = F;
  static SENNIT_BOTH F nan() { return bits_as<F>(nan_bits); }
  static SENNIT_BOTH F min(F a, F b) {
    if (a == b) return bits_as<F>(bits_as<B>(a) | bits_as<B>(b));
    return a < b ? a : (a > b ? b : nan());
  }
  static SENNIT_BOTH F max(F a, F b) {
    if (a == b) return bits_as<F>(bits_as<B>(a) & bits_as<B>(b));
    return a > b ? a : (a < b ? b : nan());
  }
  static SENNIT_DIVIDE F divide(F x, F divisor) { return x / divisor; }
  static SENNIT_BOTH F canonical(F x) { return x == x ? x : nan(); }
};
using Fp32 = Float<float, uint32_t, 0x7fc00000u>;
using Fp64 = Float<double, uint64_t, 0x7ff8000000000000ull>;

// Floats that are calculated with as they are.
template <typename F>
struct WideFloat : F {
  static constexpr size_t kBytes = sizeof(typename F::Accumulator);
  using Bits = BitsOf<kBytes>;
  using AnySign = WideFloat;
  static SENNIT_BOTH typename F::Accumulator widen(Bits x) {
    return bits_as<typename F::Accumulator>(x);
  }
  static SENNIT_BOTH Bits narrow(typename F::Accumulator x) { return bits_as<Bits>(x); }
};
using Float32 = WideFloat<Fp32>;
using Float64 = WideFloat<Fp64>;

// The upper half of an fp32.
struct Bfloat16 : Fp32 {
  static constexpr size_t kBytes = 2;
  using Bits = uint16_t;
  using AnySign = Bfloat16;
  static SENNIT_BOTH float widen(Bits x) { return bits_as<float>(static_cast<uint32_t>(x) << 16); }
  static SENNIT_BOTH Bits narrow(float v) {  // v is canonical: a NaN cannot overflow into the sign
    const uint32_t x = bits_as<uint32_t>(v);
    return static_cast<Bits>((x + 0x7fff + ((x >> 16) & 1)) >> 16);
  }
#if defined(__CUDA_ARCH__)
  // NaNs are others than ours.
  static __device__ __forceinline__ uint32_t narrow_pair(float a, float b) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    if (a != a) r = (r & 0xffff0000u) | 0x7fc0;
    if (b != b) r = (r & 0xffffu) | 0x7fc0u << 16;
    return r;
  }
#endif
};

// A float of 1 + exponent_bits + mantissa_bits bits below fp32. Without `infinity` the highest code
// is the only NaN. The same steps as reduce/lanes.hpp.
template <typename B, int exponent_bits, int mantissa_bits, bool infinity>
struct NarrowFloat : Fp32 {
  static constexpr size_t kBytes = sizeof(B);
  using Bits = B;
  static constexpr int kShift = 23 - mantissa_bits;
  static constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr uint32_t kSignBit = 1u << (exponent_bits + mantissa_bits);
  static constexpr uint32_t kExponentMask = ((1u << exponent_bits) - 1) << mantissa_bits;
  static constexpr uint32_t kNan =
      infinity ? kExponentMask | 1u << (mantissa_bits - 1) : kSignBit - 1;
  static constexpr uint32_t kOverflow = infinity ? kExponentMask : kNan;
  static constexpr uint32_t kLeastNormal = static_cast<uint32_t>(127 - kBias + 1) << 23;
  static constexpr uint32_t kRounder = static_cast<uint32_t>(127 - kBias + 1 + kShift) << 23;
  static constexpr float kLeastDenormal =
      1.0f / static_cast<float>(1ull << (kBias - 1 + mantissa_bits));

  static SENNIT_BOTH float widen(Bits element) {
    const uint32_t x = element;
    const uint32_t magnitude = x & (kSignBit - 1);
    const uint32_t sign = (x & kSignBit) << (31 - exponent_bits - mantissa_bits);
    uint32_t r = (magnitude << kShift) + kRebias;
    if (magnitude < (1u << mantissa_bits))
      r = bits_as<uint32_t>(static_cast<float>(magnitude) * kLeastDenormal);
    if (infinity && magnitude >= kExponentMask) r = (magnitude << kShift) | 0x7f800000u;
    if (!infinity && magnitude == kNan) r = 0x7fc00000u;
    return bits_as<float>(r | sign);
  }

  static SENNIT_BOTH Bits narrow(float v) {
    const uint32_t x = bits_as<uint32_t>(v);
    const uint32_t magnitude = x & 0x7fffffffu;
    const uint32_t sign = (x & 0x80000000u) >> (31 - exponent_bits - mantissa_bits);
    const uint32_t half = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1);
    uint32_t r = (magnitude + half - kRebias) >> kShift;
    if (magnitude < kLeastNormal)
      // Adding a power of two whose last bit is the smallest denormal rounds to a multiple of it.
      r = bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(kRounder)) - kRounder;
    else if (r > kOverflow)
      r = kOverflow;
    if (magnitude > 0x7f800000u) r = kNan;
    r |= sign;
    return static_cast<Bits>(!infinity && (r & kNan) == kNan ? kNan : r);
  }
};

// IEEE's float of 16 bits.
struct Float16 : NarrowFloat<uint16_t, 5, 10, true> {
  using AnySign = Float16;
#if defined(__CUDA_ARCH__)
  static __device__ __forceinline__ float widen(Bits x) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
  }
  // NaNs are others than ours.
  static __device__ __forceinline__ uint32_t narrow_pair(float a, float b) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    if (a != a) r = (r & 0xffff0000u) | 0x7e00;
    if (b != b) r = (r & 0xffffu) | 0x7e00u << 16;
    return r;
  }
#endif
};

// OCP's 8-bit float without infinities: what overflows is NaN.
struct Float8E4m3 : NarrowFloat<uint8_t, 4, 3, false> {
  using AnySign = Float8E4m3;
#if defined(__CUDA_ARCH__)
  static __device__ __forceinline__ float widen(Bits x) {
    // The same digits in an fp16 are the number times 2^-8: its exponent has eight more below.
    const float r = Float16::widen(static_cast<uint16_t>((x & 0x80) << 8 | (x & 0x7f) << 7));
    return (x & 0x7f) == 0x7f ? nan() : r * 256.0f;
  }
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  // The device's conversion stops at the largest number.
  static __device__ __forceinline__ uint32_t narrow_pair(float a, float b) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    uint32_t r = pair;
    if (!(fabsf(a) <= 464)) r = (r & 0xff00) | kNan;
    if (!(fabsf(b) <= 464)) r = (r & 0xff) | kNan << 8;
    return r;
  }
#endif
};

// OCP's 8-bit float with infinities.
struct Float8E5m2 : NarrowFloat<uint8_t, 5, 2, true> {
  using AnySign = Float8E5m2;
#if defined(__CUDA_ARCH__)
  static __device__ __forceinline__ float widen(Bits x) {  // the upper half of an fp16
    return Float16::widen(static_cast<uint16_t>(x << 8));
  }
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  // The device's conversion stops at the largest number, and the next is infinity. It makes of a
  // NaN one more than ours.
  static __device__ __forceinline__ uint32_t narrow_pair(float a, float b) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    uint32_t r = pair;
    if (fabsf(a) >= 61440) r += 1;
    if (fabsf(b) >= 61440) r += 1 << 8;
    if (a != a) r = (r & 0xff00) | kNan;
    if (b != b) r = (r & 0xff) | kNan << 8;
    return r;
  }
#endif
};

// ---- operations ----

// One element to and from memory of any alignment.
template <typename T>
SENNIT_BOTH typename T::Accumulator load(const void* from) {
  typename T::Bits bits;
  memcpy(&bits, from, sizeof bits);
  return T::widen(bits);
}
template <typename T>
SENNIT_BOTH void store(void* to, typename T::Accumulator v) {
  const typename T::Bits bits = T::narrow(v);
  memcpy(to, &bits, sizeof bits);
}

// Two to one. An average adds up, and finish() divides the whole sum.
template <typename T, KernelOp op>
SENNIT_BOTH typename T::Accumulator combine(typename T::Accumulator a, typename T::Accumulator b) {
  using A = typename T::Accumulator;
  if constexpr (op == KernelOp::prod)
    return static_cast<A>(a * b);
  else if constexpr (op == KernelOp::min)
    return T::min(a, b);
  else if constexpr (op == KernelOp::max)
    return T::max(a, b);
  else if constexpr (op == KernelOp::band)
    return static_cast<A>(a & b);
  else if constexpr (op == KernelOp::bor)
    return static_cast<A>(a | b);
  else if constexpr (op == KernelOp::bxor)
    return static_cast<A>(a ^ b);
  else
    return static_cast<A>(a + b);
}

// What is stored of a result: divided where it is an average, with canonical NaNs.
template <typename T, KernelOp op>
SENNIT_BOTH typename T::Accumulator finish(typename T::Accumulator v, typename T::Divisor divisor) {
  if constexpr (op == KernelOp::average) v = T::divide(v, divisor);
  return T::canonical(v);
}

// finish() and narrow() of two neighbours of one or two bytes, the first in the lower bits.
template <typename T, KernelOp op>
SENNIT_BOTH uint32_t finish_pair(typename T::Accumulator a, typename T::Accumulator b,
                                 typename T::Divisor divisor) {
#if defined(__CUDA_ARCH__)
  if constexpr (requires { T::narrow_pair(a, b); }) {
    if constexpr (op == KernelOp::average)
      return T::narrow_pair(T::divide(a, divisor), T::divide(b, divisor));
    else
      return T::narrow_pair(a, b);
  }
#endif
  return static_cast<uint32_t>(T::narrow(finish<T, op>(a, divisor))) |
         static_cast<uint32_t>(T::narrow(finish<T, op>(b, divisor))) << (8 * T::kBytes);
}

// ---- which of them ----

// runner.run<tag, operation>(), nothing where the operation is not of the type.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <typename T, typename Runner>
SENNIT_BOTH void run_op(KernelOp op, Runner& runner) {
  using AnySign = typename T::AnySign;
  switch (op) {
    case KernelOp::sum:
      return runner.template run<AnySign, KernelOp::sum>();
    case KernelOp::prod:
      return runner.template run<AnySign, KernelOp::prod>();
    case KernelOp::min:
      return runner.template run<T, KernelOp::min>();
    case KernelOp::max:
      return runner.template run<T, KernelOp::max>();
    case KernelOp::average:
      return runner.template run<T, KernelOp::average>();
    default:
      break;
  }
  if constexpr (T::kInteger) {
    if (op == KernelOp::band) return runner.template run<AnySign, KernelOp::band>();
    if (op == KernelOp::bor) return runner.template run<AnySign, KernelOp::bor>();
    return runner.template run<AnySign, KernelOp::bxor>();
  }
}

// runner.run<tag>() for a DataType's number.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <typename Runner>
SENNIT_BOTH void run_type(int type, Runner& runner) {
  switch (type) {
    case SENNIT_INT8:
      return runner.template run<Integer<int8_t>>();
    case SENNIT_UINT8:
      return runner.template run<Integer<uint8_t>>();
    case SENNIT_INT32:
      return runner.template run<Integer<int32_t>>();
    case SENNIT_UINT32:
      return runner.template run<Integer<uint32_t>>();
    case SENNIT_INT64:
      return runner.template run<Integer<int64_t>>();
    case SENNIT_UINT64:
      return runner.template run<Integer<uint64_t>>();
    case SENNIT_FLOAT16:
      return runner.template run<Float16>();
    case SENNIT_BFLOAT16:
      return runner.template run<Bfloat16>();
    case SENNIT_FLOAT32:
      return runner.template run<Float32>();
    case SENNIT_FLOAT64:
      return runner.template run<Float64>();
    case SENNIT_FLOAT8_E4M3:
      return runner.template run<Float8E4m3>();
    case SENNIT_FLOAT8_E5M2:
      return runner.template run<Float8E5m2>();
    default:
      break;
  }
}

// 0: no type.
SENNIT_BOTH size_t bytes_of(int type) {
  constexpr unsigned long long kBytes = 0x118422884411;  // a digit each, the first the lowest
  static_assert(SENNIT_TYPE_COUNT == 12);
  return type < 0 || type >= SENNIT_TYPE_COUNT ? 0 : static_cast<size_t>(kBytes >> 4 * type & 15);
}

// Whether one input is the result, bit for bit: also a NaN that is not canonical.
SENNIT_BOTH bool copies(KernelOp op, size_t inputs, uint64_t divisor) {
  return inputs == 1 && (op != KernelOp::average || divisor == 1);
}

// ---- whole arrays, on the processor ----

// Whole arrays, for run_type().
struct Elements {
  char* out;
  const char* const* in;
  size_t inputs, count;
  uint64_t divisor;
  KernelOp what;
  template <typename T>
  void run() const {
    run_op<T>(what, *this);
  }
  template <typename T, KernelOp op>
  void run() const {
    const auto by = static_cast<typename T::Divisor>(divisor);
    for (size_t at = 0; at < count * T::kBytes; at += T::kBytes) {
      typename T::Accumulator v = load<T>(in[0] + at);
      for (size_t k = 1; k < inputs; k++) v = combine<T, op>(v, load<T>(in[k] + at));
      store<T>(out + at, finish<T, op>(v, by));
    }
  }
};

// What reduce() does, slowly. Type and operation are numbers of DataType and KernelOp; `out` may be
// any of the inputs, and overlaps none otherwise.
inline void reduce_elements(int type, KernelOp op, void* out, const void* const* inputs, size_t n,
                            size_t count, uint64_t divisor) {
  if (op == KernelOp::average && divisor == 1) op = KernelOp::sum;
  if (copies(op, n, divisor)) {
    if (out != inputs[0]) memcpy(out, inputs[0], count * bytes_of(type));
    return;
  }
  const Elements elements{
      static_cast<char*>(out), reinterpret_cast<const char* const*>(inputs), n, count, divisor, op};
  run_type(type, elements);
}

}  // namespace sennit::element
