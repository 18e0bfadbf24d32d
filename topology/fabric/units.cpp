// units.cpp: see topology/fabric/units.hpp. A number is digits with at most one point; it is held
// as digits and a power of ten, so nothing is rounded on the way.
#include "topology/fabric/units.hpp"

#include <array>

#include <fmt/core.h>

namespace sennit {
namespace {

struct Unit {
  std::string_view name;
  uint64_t scale;
};
// Largest first, as writing wants them. Bits are what cables are sold in; bytes are written where
// bits would be long.
constexpr size_t kLongest = std::string_view("400.125Gbit/s").size();
constexpr uint64_t kMostLatencyNs = 1'000'000'000'000'000;
constexpr std::array kBits = {Unit{"Tbit/s", 1'000'000'000'000}, Unit{"Gbit/s", 1'000'000'000},
                              Unit{"Mbit/s", 1'000'000}, Unit{"kbit/s", 1'000}, Unit{"bit/s", 1}};
constexpr std::array kBytes = {Unit{"TB/s", 1'000'000'000'000}, Unit{"GB/s", 1'000'000'000},
                               Unit{"MB/s", 1'000'000}, Unit{"kB/s", 1'000}, Unit{"B/s", 1}};
constexpr std::array kTimes = {Unit{"s", 1'000'000'000}, Unit{"ms", 1'000'000}, Unit{"us", 1'000},
                               Unit{"ns", 1}};
constexpr std::array kSizes = {Unit{"GiB", 1 << 30}, Unit{"MiB", 1 << 20}, Unit{"KiB", 1 << 10},
                               Unit{"B", 1}};

// "12.5" and a scale -> 12.5 * scale, exactly; nullopt if it is no whole number or does not fit.
std::optional<uint64_t> scaled(std::string_view number, uint64_t scale) {
  unsigned __int128 value = 0;
  unsigned __int128 divisor = 1;
  bool point = false;
  bool digits = false;
  for (const char c : number) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9' || value > UINT64_MAX || divisor > UINT64_MAX / 10) return std::nullopt;
    digits = true;
    value = value * 10 + static_cast<unsigned>(c - '0');
    if (point) divisor *= 10;
  }
  if (!digits || value > UINT64_MAX) return std::nullopt;
  value *= scale;
  if (value % divisor != 0 || value / divisor > UINT64_MAX) return std::nullopt;
  return static_cast<uint64_t>(value / divisor);
}

template <size_t N>
std::optional<uint64_t> parse(std::string_view text, const std::array<Unit, N>& units) {
  const size_t end = text.find_first_not_of("0123456789.");
  if (end == 0 || end == std::string_view::npos) return std::nullopt;
  for (const Unit& unit : units)
    if (text.substr(end) == unit.name) return scaled(text.substr(0, end), unit.scale);
  return std::nullopt;
}

// With up to three decimals, in the largest unit where that is exact and short.
template <size_t N>
std::string format(uint64_t value, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    const uint64_t thousandth = unit.scale >= 1000 ? unit.scale / 1000 : unit.scale;
    const uint64_t rest = value % unit.scale / thousandth;
    if (value < unit.scale || value % thousandth != 0 || (rest != 0 && value / unit.scale > 9999))
      continue;
    std::string text = std::to_string(value / unit.scale);
    if (rest != 0) {
      const std::string decimals = std::to_string(1000 + rest).substr(1);
      text += '.' + decimals.substr(0, decimals.find_last_not_of('0') + 1);
    }
    return text += unit.name;
  }
  return fmt::format("0{}", units.back().name);
}

}  // namespace

std::optional<uint64_t> parse_rate(std::string_view text) {
  if (text == "unknown") return 0;
  std::optional<uint64_t> rate = parse(text, kBytes);
  if (!rate) {
    rate = parse(text, kBits);
    if (rate && *rate % 8 != 0) return std::nullopt;
    if (rate) *rate /= 8;
  }
  return rate == 0 ? std::nullopt : rate;
}

std::string format_rate(uint64_t bytes_per_s) {
  if (bytes_per_s == 0) return "unknown";
  if (bytes_per_s > UINT64_MAX / 8) return format(bytes_per_s, kBytes);
  std::string bits = format(bytes_per_s * 8, kBits);
  std::string bytes = format(bytes_per_s, kBytes);
  return bits.size() > kLongest && bytes.size() < bits.size() ? bytes : bits;
}

std::optional<uint64_t> parse_time(std::string_view text) { return parse(text, kTimes); }

std::optional<uint64_t> parse_latency(std::string_view text) {
  const std::optional<uint64_t> ns = parse_time(text);
  return ns && *ns <= kMostLatencyNs ? ns : std::nullopt;
}

std::string format_time(uint64_t ns) { return format(ns, kTimes); }

std::optional<uint64_t> parse_size(std::string_view text) { return parse(text, kSizes); }

std::string format_size(uint64_t bytes) {
  for (const Unit& unit : kSizes)
    if (bytes >= unit.scale && bytes % unit.scale == 0)
      return fmt::format("{}{}", bytes / unit.scale, unit.name);
  return "0B";
}

}  // namespace sennit
