// convert.cpp: one element to and from double, by the definition of each format; for tests and
// references.
//
// Independent of the kernels on purpose: it works with ldexp and nearbyint on doubles where they
// work on bits, so that each checks the other. Slow; never on a data path.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "reduce/reduce.hpp"

namespace sennit {
namespace {

// How a narrow float is laid out, from the highest bit: sign, exponent, mantissa.
struct Format {
  int exponent_bits, mantissa_bits;
  bool infinity;  // else the highest code is the only NaN and there is no infinity
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t exponent_mask() const { return sign_bit() - (1u << mantissa_bits); }
  uint32_t nan() const {
    return infinity ? exponent_mask() | 1u << (mantissa_bits - 1) : sign_bit() - 1;
  }
};

constexpr Format kFloat16{5, 10, true};
constexpr Format kBfloat16{8, 7, true};
constexpr Format kE4m3{4, 3, false};
constexpr Format kE5m2{5, 2, true};

double decode(const Format& f, uint32_t bits) {
  const uint32_t magnitude = bits & (f.sign_bit() - 1);
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const double mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  double value = 0;
  if (f.infinity ? magnitude > f.exponent_mask() : magnitude == f.nan())
    value = std::numeric_limits<double>::quiet_NaN();
  else if (f.infinity && magnitude == f.exponent_mask())
    value = std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  else
    value = std::ldexp(std::ldexp(1.0, f.mantissa_bits) + mantissa,
                       exponent - f.bias() - f.mantissa_bits);
  return (bits & f.sign_bit()) != 0 ? -value : value;
}

uint32_t encode(const Format& f, double value) {
  if (std::isnan(value)) return f.nan();
  const uint32_t sign = std::signbit(value) ? f.sign_bit() : 0;
  const uint32_t overflow = f.infinity ? f.exponent_mask() | sign : f.nan();
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return overflow;
  if (magnitude == 0) return sign;
  // The exponent of the last place, and the mantissa as an integer in that place, rounded to
  // nearest even.
  const int place = std::max(std::ilogb(magnitude), 1 - f.bias()) - f.mantissa_bits;
  auto code = static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, -place)));
  code += static_cast<uint64_t>(place + f.mantissa_bits + f.bias() - 1) << f.mantissa_bits;
  return code >= (f.infinity ? f.exponent_mask() : f.nan()) ? overflow
                                                            : static_cast<uint32_t>(code) | sign;
}

template <typename T>
T get(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}
template <typename T>
void put(void* element, T value) {
  std::memcpy(element, &value, sizeof value);
}

// Truncates, and saturates at the ends of the type; NaN is 0.
template <typename T>
void put_integer(void* element, double value) {
  T result = 0;
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits))
    result = std::numeric_limits<T>::max();
  else if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    result = std::numeric_limits<T>::min();
  else if (!std::isnan(value))
    result = static_cast<T>(value);
  put(element, result);
}

}  // namespace

double to_double(DataType type, const void* element) {
  switch (type) {
    case DataType::int8:
      return get<int8_t>(element);
    case DataType::uint8:
      return get<uint8_t>(element);
    case DataType::int32:
      return get<int32_t>(element);
    case DataType::uint32:
      return get<uint32_t>(element);
    case DataType::int64:
      return static_cast<double>(get<int64_t>(element));
    case DataType::uint64:
      return static_cast<double>(get<uint64_t>(element));
    case DataType::float16:
      return decode(kFloat16, get<uint16_t>(element));
    case DataType::bfloat16:
      return decode(kBfloat16, get<uint16_t>(element));
    case DataType::float32:
      return get<float>(element);
    case DataType::float64:
      return get<double>(element);
    case DataType::float8_e4m3:
      return decode(kE4m3, get<uint8_t>(element));
    case DataType::float8_e5m2:
      return decode(kE5m2, get<uint8_t>(element));
  }
  return 0;
}

void from_double(DataType type, double value, void* element) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();  // canonical
  switch (type) {
    case DataType::int8:
      return put_integer<int8_t>(element, value);
    case DataType::uint8:
      return put_integer<uint8_t>(element, value);
    case DataType::int32:
      return put_integer<int32_t>(element, value);
    case DataType::uint32:
      return put_integer<uint32_t>(element, value);
    case DataType::int64:
      return put_integer<int64_t>(element, value);
    case DataType::uint64:
      return put_integer<uint64_t>(element, value);
    case DataType::float16:
      return put(element, static_cast<uint16_t>(encode(kFloat16, value)));
    case DataType::bfloat16:
      return put(element, static_cast<uint16_t>(encode(kBfloat16, value)));
    case DataType::float32:
      return put(element, static_cast<float>(value));
    case DataType::float64:
      return put(element, value);
    case DataType::float8_e4m3:
      return put(element, static_cast<uint8_t>(encode(kE4m3, value)));
    case DataType::float8_e5m2:
      return put(element, static_cast<uint8_t>(encode(kE5m2, value)));
  }
}

}  // namespace sennit
