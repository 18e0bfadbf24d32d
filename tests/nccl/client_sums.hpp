// client_sums.hpp: what real_client.cpp and the test that judges it share: the inputs, and one
// number for a result. All results are exact, in whatever order a sum is made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace client {

constexpr size_t kCount = 700;
constexpr int kTypes = 12;
constexpr int kOps = 5;
constexpr int kProduct = 1;  // NCCL's number
constexpr int kRoot = 1;
// Of sums of what is multiplied first, one call after the other.
constexpr std::array<float, 2> kScalars = {2, 4};

// By NCCL's numbers: bytes of an element, and 1 and 2 in its bits.
struct Element {
  size_t bytes;
  uint64_t one;
  uint64_t two;
};
constexpr std::array<Element, kTypes> kElements = {{{1, 1, 2},
                                                    {1, 1, 2},
                                                    {4, 1, 2},
                                                    {4, 1, 2},
                                                    {8, 1, 2},
                                                    {8, 1, 2},
                                                    {2, 0x3c00, 0x4000},
                                                    {4, 0x3f800000, 0x40000000},
                                                    {8, 0x3ff0000000000000, 0x4000000000000000},
                                                    {2, 0x3f80, 0x4000},
                                                    {1, 0x38, 0x40},
                                                    {1, 0x3c, 0x40}}};

// Elements 0 and 1; 1 and 2 for products.
inline std::vector<std::byte> input(int rank, int type, int op, size_t count) {
  const Element& element = kElements[static_cast<size_t>(type)];
  std::vector<std::byte> bytes(count * element.bytes);
  for (size_t i = 0; i < count; i++) {
    const bool set = (i * 7 + static_cast<size_t>(rank) * 13 + i / 11) % 3 == 0;
    const uint64_t low = op == kProduct ? element.one : 0;
    const uint64_t high = op == kProduct ? element.two : element.one;
    const uint64_t value = set ? high : low;
    std::memcpy(&bytes[i * element.bytes], &value, element.bytes);  // little-endian
  }
  return bytes;
}

// FNV-1a, and the name that goes with it.
inline std::string line(const std::string& name, const std::vector<std::byte>& result) {
  uint64_t hash = 14695981039346656037ULL;
  for (const std::byte b : result) hash = (hash ^ static_cast<uint64_t>(b)) * 1099511628211ULL;
  char digits[32];
  std::snprintf(digits, sizeof digits, " %016llx\n", static_cast<unsigned long long>(hash));
  return name + digits;
}
inline std::string name(const char* call, int type, int op) {
  return std::string(call) + " type " + std::to_string(type) + " op " + std::to_string(op);
}

}  // namespace client
