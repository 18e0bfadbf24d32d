// free_memory.cpp: see free_memory.hpp.
#include "free_memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace sennit {
namespace {

// The number behind a word of a file; an empty word: the file's first. 0: none, or no limit.
uint64_t number_in(const char* file, const char* key) {
  std::ifstream in(file);
  std::string word;
  while (in >> word)
    if (word == key || *key == 0) {
      if (*key != 0) in >> word;
      return word == "max" ? 0 : std::strtoull(word.c_str(), nullptr, 10);
    }
  return 0;
}

}  // namespace

uint64_t memory_of_this_host() {
  uint64_t bytes = number_in("/proc/meminfo", "MemAvailable:") * 1024;
  const uint64_t limit = number_in("/sys/fs/cgroup/memory.max", "");
  if (limit > 0) {
    const uint64_t used = number_in("/sys/fs/cgroup/memory.current", "");
    const uint64_t cached = number_in("/sys/fs/cgroup/memory.stat", "inactive_file");
    bytes = std::min(bytes, limit - std::min(limit, used - std::min(used, cached)));
  }
  return bytes;
}

uint64_t free_memory(uint64_t sharers) {
  const uint64_t share = memory_of_this_host() / sharers;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return share;
  const uint64_t taken = number_in("/proc/self/status", "VmSize:") * 1024;
  return std::max<uint64_t>(
      1, std::min<uint64_t>(share, limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, taken)));
}

}  // namespace sennit
