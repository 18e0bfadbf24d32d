// log.hpp: one line per event on stderr: "sennit: rank 3: warning: ...".
#pragma once

#include <string_view>

#include <fmt/core.h>

namespace sennit {

enum class LogLevel : int { error, warn, info, debug };
// Whether lines of this level are written: those of SENNIT_LOG (error, warn, info or debug; else
// warn) and of the levels before it. The variable is read once. Any thread.
bool log_enabled(LogLevel level);
// Writes the line, whatever its level, in one piece: lines of several threads do not mix.
void log_line(LogLevel level, std::string_view text);
// The rank that lines of this process name from now on. Below 0, as it is at first: none.
void set_log_rank(int rank);

// Formats and writes the line only where its level is enabled.
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sennit
