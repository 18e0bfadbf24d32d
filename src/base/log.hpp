// log.hpp: one line per event on stderr: "sennit: rank 3: warning: ...". SENNIT_LOG is error, warn
// (default), info or debug.
#pragma once

#include <string_view>

#include <fmt/core.h>

namespace sennit {

enum class LogLevel : int { error, warn, info, debug };
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);
void set_log_rank(int rank);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sennit
