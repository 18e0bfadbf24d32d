// rates.cpp: widths and speeds of InfiniBand ports: their names, what they carry, and how PortInfo
// codes them (InfiniBand Architecture Specification, volume 1; the offsets are those of libibmad's
// fields.c, of which older versions lack the second extension, XDR). Pure.
#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/core.h>

#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit {
namespace {

constexpr std::array<std::string_view, 10> kNames = {"???", "SDR", "DDR", "QDR", "FDR10",
                                                     "FDR", "EDR", "HDR", "NDR", "XDR"};

// A field of PortInfo by its first bit, counted from the first byte's highest.
uint32_t field(std::span<const uint8_t, 64> info, size_t bit, size_t bits) {
  uint32_t value = 0;
  for (size_t i = bit; i < bit + bits; i++) value = value << 1 | (info[i / 8] >> (7 - i % 8) & 1u);
  return value;
}

// What is enabled; all ones stand for all that is supported.
uint32_t enabled(uint32_t mask, uint32_t supported, uint32_t all) {
  return mask == all || mask == 0 ? supported : mask & supported;
}

uint16_t bit_of(IbSpeed speed) { return static_cast<uint16_t>(1u << static_cast<unsigned>(speed)); }

}  // namespace

std::string_view name(IbSpeed speed) { return kNames[static_cast<size_t>(speed)]; }

IbSpeed ib_speed_named(std::string_view name) {
  const auto found = std::find(kNames.begin() + 1, kNames.end(), name);
  return found == kNames.end() ? IbSpeed::unknown : static_cast<IbSpeed>(found - kNames.begin());
}

int ib_lanes(uint32_t width_code) {
  switch (width_code) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

uint64_t ib_data_rate(int width, IbSpeed speed) {
  struct Lane {
    uint64_t kilobaud, data, line;  // data bits in line bits
  };
  constexpr std::array<Lane, 10> kLanes = {{{0, 0, 1},
                                            {2'500'000, 8, 10},
                                            {5'000'000, 8, 10},
                                            {10'000'000, 8, 10},
                                            {10'312'500, 64, 66},
                                            {14'062'500, 64, 66},
                                            {25'781'250, 64, 66},
                                            {53'125'000, 16, 17},
                                            {106'250'000, 16, 17},
                                            {212'500'000, 16, 17}}};
  const Lane& lane = kLanes[static_cast<size_t>(speed)];
  return static_cast<uint64_t>(width) * lane.kilobaud * 1000 * lane.data / lane.line / 8;
}

std::string ib_rate_name(int width, IbSpeed speed) {
  return width == 0 || speed == IbSpeed::unknown ? "" : fmt::format("{}x{}", width, name(speed));
}

uint64_t ib_data_rate(std::string_view rate_name) {
  int width = 0;
  const char* const end = rate_name.data() + rate_name.size();
  const auto [stop, failed] = std::from_chars(rate_name.data(), end, width);
  if (failed != std::errc() || stop == end || *stop != 'x' || width < 1 || width > 12) return 0;
  return ib_data_rate(
      width, ib_speed_named(rate_name.substr(static_cast<size_t>(stop - rate_name.data()) + 1)));
}

IbPortRates ib_port_rates(std::span<const uint8_t, 64> info,
                          std::span<const uint8_t, 64> capabilities, bool fdr10) {
  constexpr uint32_t kExtendedSpeeds = 1u << 14;  // of the capability mask
  constexpr uint32_t kSecondMask = 1u << 15;      // and there is a second mask
  // of which this bit makes the second extension valid
  constexpr uint32_t kExtendedSpeeds2 = 1u << 11;
  const uint32_t mask = field(capabilities, 160, 32);
  const uint32_t mask2 = (mask & kSecondMask) != 0 ? field(capabilities, 480, 16) : 0;
  IbPortRates rates;
  rates.width = ib_lanes(field(info, 248, 8));
  rates.able_widths = static_cast<uint8_t>(enabled(field(info, 232, 8), field(info, 240, 8), 0xff));

  const auto able = [&](uint32_t bits, std::initializer_list<IbSpeed> speeds) {
    for (const IbSpeed speed : speeds) {
      if ((bits & 1) != 0) rates.able_speeds |= bit_of(speed);
      bits >>= 1;
    }
  };
  const auto active = [&](uint32_t bits, std::initializer_list<IbSpeed> speeds) {
    for (const IbSpeed speed : speeds) {
      if (bits == 1) return speed;
      bits >>= 1;
    }
    return IbSpeed::unknown;  // none that is known today, or several at once
  };
  const auto plain = {IbSpeed::sdr, IbSpeed::ddr, IbSpeed::qdr};
  const auto extended = {IbSpeed::fdr, IbSpeed::edr, IbSpeed::hdr, IbSpeed::ndr};
  const auto extended2 = {IbSpeed::xdr};
  able(enabled(field(info, 284, 4), field(info, 256, 4), 0xf), plain);
  uint32_t now = field(info, 280, 4);
  rates.speed = active(now, plain);
  if (rates.speed == IbSpeed::qdr && fdr10) rates.speed = IbSpeed::fdr10;
  if ((mask & kExtendedSpeeds) == 0) return rates;
  if (const uint32_t on = field(info, 507, 5); on != 30)  // 30: all switched off
    able(enabled(on, field(info, 500, 4), 0x1f), extended);
  if ((now = field(info, 496, 4)) != 0) rates.speed = active(now, extended);
  if ((mask2 & kExtendedSpeeds2) == 0) return rates;
  able(enabled(field(info, 453, 3), field(info, 451, 2), 0x7), extended2);
  if ((now = field(info, 449, 2)) != 0) rates.speed = active(now, extended2);
  return rates;
}

std::string ib_able_name(const IbPortRates& here, const IbPortRates& there) {
  int width = 0;
  for (const uint32_t code : {1u, 2u, 4u, 8u, 16u})
    if ((here.able_widths & there.able_widths & code) != 0) width = std::max(width, ib_lanes(code));
  IbSpeed speed = IbSpeed::unknown;
  for (size_t s = 1; s < kNames.size(); s++)
    if ((here.able_speeds & there.able_speeds & bit_of(static_cast<IbSpeed>(s))) != 0)
      speed = static_cast<IbSpeed>(s);
  return ib_rate_name(width, speed);
}

}  // namespace sennit
