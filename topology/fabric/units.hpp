// units.hpp: rates, times and sizes as people write them: "400Mbit/s", "50GB/s", "unknown"; "5us",
// "1.5ms"; "256KiB". Decimal prefixes, but for KiB and MiB.
//
// Pure. Reading is exact integer arithmetic and refuses what does not fit; writing picks the
// largest unit that is exact, so what is written reads back to the same number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sennit {

// bytes/s
inline constexpr uint64_t kMbit = 125'000;
inline constexpr uint64_t kGbit = 1'000 * kMbit;
// What a network's speed may be at most, so that nonsense is not taken for one: Mbit/s.
inline constexpr int kMostMbit = 100'000'000;

// bytes/s; "unknown" is 0. nullopt: not a rate, or not a whole number of bytes/s, or zero, or too
// large.
std::optional<uint64_t> parse_rate(std::string_view text);
std::string format_rate(uint64_t bytes_per_s);  // 0: "unknown"

// nanoseconds; nullopt: not a time, or not a whole number of them.
std::optional<uint64_t> parse_time(std::string_view text);
// Of a link, so that any sum of them fits: nullopt also where it is longer than 11 days.
std::optional<uint64_t> parse_latency(std::string_view text);
inline constexpr std::string_view kLatencies = "a time of 11 days at most, e.g. 5us";
std::string format_time(uint64_t ns);

// bytes; nullopt: not a size, or not a whole number of bytes.
std::optional<uint64_t> parse_size(std::string_view text);
std::string format_size(uint64_t bytes);

}  // namespace sennit
