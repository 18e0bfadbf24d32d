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

// Adds a value to a running hash: splitmix64's finaliser over the sum. Fingerprints that are kept
// in files are made of it, so it stays as it is.
constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  hash += value + 0x9e3779b97f4a7c15ull;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
  return hash ^ (hash >> 31);
}

}  // namespace sennit
