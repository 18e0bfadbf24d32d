// arithmetic.hpp: whole numbers that do not wrap around, rounding, and the mixing of hashes.
//
// All ranks must work out the same, so what they agree on is computed in integers.
#pragma once

#include <cstdint>

namespace sennit {

// Holds the product of two 64-bit numbers.
using Wide = unsigned __int128;

inline constexpr uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr uint64_t kPermille = 1'000;  // the whole, in thousandths

// The largest 64-bit number where `value` does not fit.
constexpr uint64_t saturated(Wide value) {
  return value > ~uint64_t{0} ? ~uint64_t{0} : static_cast<uint64_t>(value);
}

// floor(a * b / c) without overflow in between; the result must fit.
constexpr uint64_t scaled(uint64_t a, uint64_t b, uint64_t c) {
  constexpr uint64_t kSmallA = uint64_t{1} << 26, kSmallB = uint64_t{1} << 38;
  if (a < kSmallA && b < kSmallB) return a * b / c;
  return static_cast<uint64_t>(Wide{a} * b / c);
}

// How long so many bytes take at a rate, in ns.
constexpr uint64_t transfer_ns(uint64_t bytes, uint64_t bytes_per_s) {
  return saturated(Wide{bytes} * kNsPerSecond / bytes_per_s);
}

// ceil(a / b) of what is not negative.
template <typename T>
constexpr T divided_up(T a, T b) {
  return (a + b - 1) / b;
}

// 2^64 / the golden ratio: multiples of it lie far from each other.
inline constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15ull;

// splitmix64's finaliser: every bit of the result depends on every bit of x, no two x give the
// same, and 0 gives 0. Fingerprints in files, first weights and the order of samples are made of
// this and of mix(), so both stay as they are.
constexpr uint64_t scrambled(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
// Adds a value to a running hash. mix(0, x) is splitmix64's first number from the state x.
constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  return scrambled(hash + value + kGoldenRatio);
}

}  // namespace sennit
