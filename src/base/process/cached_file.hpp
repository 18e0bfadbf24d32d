// cached_file.hpp: where a file of ours lies in the user's cache.
#pragma once

#include <cstdlib>
#include <string>

namespace sennit {

// Below XDG_CACHE_HOME, else ~/.cache; empty where there is neither.
inline std::string cached_file(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache && *cache) return std::string(cache) + "/sennit/" + name;
  if (home && *home) return std::string(home) + "/.cache/sennit/" + name;
  return "";
}

}  // namespace sennit
