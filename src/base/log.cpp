// log.cpp: see base/log.hpp.
#include "base/log.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace sennit {
namespace {

std::atomic<int> g_rank{-1};

int level_from_environment() {
  const char* value = std::getenv("SENNIT_LOG");
  const std::string_view text = value ? value : "warn";
  if (text == "error") return 0;
  if (text == "info") return 2;
  if (text == "debug") return 3;
  return 1;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const int limit = level_from_environment();
  return static_cast<int>(level) <= limit;
}

void set_log_rank(int rank) { g_rank = rank; }

void log_line(LogLevel level, std::string_view text) {
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  const int rank = g_rank;
  const std::string line =
      rank < 0
          ? fmt::format("sennit: {}: {}\n", kNames[static_cast<int>(level)], text)
          : fmt::format("sennit: rank {}: {}: {}\n", rank, kNames[static_cast<int>(level)], text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace sennit
