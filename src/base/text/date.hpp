// date.hpp: moments as people write them.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace sennit {

// "2026-11-21 12:03 UTC", of seconds since 1970.
inline std::string utc_minute(int64_t when_s) {
  char text[64] = {};
  const std::time_t when = when_s;
  std::tm utc = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime_r(&when, &utc));
  return text;
}

}  // namespace sennit
