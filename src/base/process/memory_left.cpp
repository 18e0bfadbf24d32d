// memory_left.cpp: see base/process/memory_left.hpp.
#include "base/process/memory_left.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/options.hpp"

namespace sennit {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// for page tables, and for ranks that look at the same time
constexpr uint64_t kReserve = 16 * kMiB;
constexpr uint64_t kMostUnseen = 64 * kMiB;
constexpr uint64_t kShare = 64;         // of what is left: taken between two looks
constexpr uint64_t kAge = 100'000'000;  // ns after which a look says nothing any more
constexpr size_t kSmall = 64 << 10;     // below, as malloc() takes it

// The number behind `key` in a file of "key number" lines, or the file's only one; `otherwise` if
// there is none.
uint64_t number_in(const std::string& file, std::string_view key, uint64_t otherwise) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (!key.empty() && word != key) continue;
    if (!key.empty()) in >> word;
    uint64_t value = 0;
    return std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc()
               ? value
               : otherwise;
  }
  return otherwise;
}

// The files of one version of cgroups.
struct Version {
  const char *limit, *used, *inactive, *active;
};
constexpr Version kFirst = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                            "total_active_file"};
constexpr Version kSecond = {"memory.max", "memory.current", "inactive_file", "active_file"};

// Narrows `left` to what the cgroup at `path`, and those above it, allow. `mount` is where the
// hierarchy's files are: those of its group `mounted`, and below them those of the groups below.
void look_at_cgroups(const std::string& mount, std::string_view mounted, std::string path,
                     const Version& version, MemoryLeft* left) {
  if (mounted == "/") mounted = "";
  // A path from outside the mount (another namespace): only what is mounted can be looked at.
  if (!path.starts_with(mounted) || path.find("/..") != std::string::npos) path = mounted;
  for (;;) {
    const std::string folder = mount + path.substr(mounted.size()) + "/";
    const uint64_t limit = number_in(folder + version.limit, "", UINT64_MAX);
    const uint64_t used = number_in(folder + version.used, "", 0);
    const uint64_t cache = number_in(folder + "memory.stat", version.inactive, 0) +
                           number_in(folder + "memory.stat", version.active, 0);
    const uint64_t kept = used - std::min(used, cache);
    if (limit - std::min(limit, kept) < left->bytes)
      *left = {limit - std::min(limit, kept),
               fmt::format("the limit of cgroup {} ({})", path.empty() ? "/" : path,
                           format_bytes(limit))};
    if (path.size() <= mounted.size()) return;
    path.resize(std::max(path.rfind('/'), mounted.size()));
  }
}

// The path of this process's cgroup: of the memory controller of version 1, or of version 2 ("").
std::string cgroup_path(const std::string& root, std::string_view controller) {
  std::ifstream in(root + "/proc/self/cgroup");  // "4:memory:/jobs/7", "0::/jobs/7"
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string list = "," + line.substr(first + 1, second - first - 1) + ",";
    if (list != fmt::format(",{},", controller) &&
        (controller.empty() || list.find(fmt::format(",{},", controller)) == std::string::npos))
      continue;
    const std::string path = line.substr(second + 1);
    return path == "/" ? "" : path;
  }
  return "";
}

// What a limit of addresses or of private memory (`taken`: its line of /proc/self/status) leaves.
void look_at_rlimit(int resource, const char* name, const char* taken, MemoryLeft* left) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return;
  const uint64_t used = number_in("/proc/self/status", taken, 0) * 1024;
  const uint64_t bytes = limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, used);
  if (bytes < left->bytes)
    *left = {bytes, fmt::format("{} ({})", name, format_bytes(limit.rlim_cur))};
}

Status lacking(size_t bytes, const MemoryLeft& left, const std::string& more = "") {
  return {SENNIT_OUT_OF_RESOURCES,
          fmt::format("no memory for {}: {} leaves {}{}", format_bytes(bytes), left.limit,
                      format_bytes(left.bytes), more)};
}

}  // namespace

MemoryLeft memory_left(const std::string& root) {
  MemoryLeft left;
  const uint64_t kib = number_in(root + "/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024);
  if (kib < UINT64_MAX / 1024) left = {kib * 1024, "this machine"};
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos || line.compare(dash + 3, 6, "cgroup") != 0) continue;
    std::string id, parent, device, mounted, point, type, source, options;
    std::istringstream(line) >> id >> parent >> device >> mounted >> point;
    std::istringstream(line.substr(dash + 3)) >> type >> source >> options;
    if (type == "cgroup2")
      look_at_cgroups(root + point, mounted, cgroup_path(root, ""), kSecond, &left);
    else if (("," + options + ",").find(",memory,") != std::string::npos)
      look_at_cgroups(root + point, mounted, cgroup_path(root, "memory"), kFirst, &left);
  }
  return left;
}

MemoryLeft memory_left_to_process(uint64_t sharers) {
  MemoryLeft left = memory_left();
  left.bytes /= left.bytes == UINT64_MAX ? 1 : sharers;
  look_at_rlimit(RLIMIT_AS, "RLIMIT_AS, ulimit -v", "VmSize:", &left);
  look_at_rlimit(RLIMIT_DATA, "RLIMIT_DATA, ulimit -d", "VmData:", &left);
  return left;
}

Status take_memory(size_t bytes, const std::function<bool(size_t offset, size_t bytes)>& take,
                   const std::string& root) {
  static std::atomic<uint64_t> unseen{0};  // may be taken before the next look
  static std::atomic<uint64_t> seen_ns{0};
  if (bytes < kSmall) return bytes == 0 || take(0, bytes) ? Status() : no_memory(bytes);
  for (size_t done = 0; done < bytes;) {
    const size_t rest = bytes - done;
    size_t piece = rest;
    uint64_t may = now_ns() - seen_ns < kAge ? unseen.load(std::memory_order_relaxed) : 0;
    while (may >= rest && !unseen.compare_exchange_weak(may, may - rest, std::memory_order_relaxed))
      continue;
    if (may < rest) {
      MemoryLeft left = memory_left(root);
      const uint64_t usable = left.bytes - std::min(left.bytes, kReserve);
      if (rest > usable) {
        left.bytes += done;  // was left for this
        return lacking(bytes, left, ", and " + format_bytes(kReserve) + " stay free");
      }
      const uint64_t share = std::clamp(usable / kShare, std::min(usable, kMiB), kMostUnseen);
      piece = std::min<size_t>(rest, share);
      unseen.store(share - piece, std::memory_order_relaxed);
      seen_ns = now_ns();
    }
    if (!take(done, piece)) return no_memory(bytes);
    done += piece;
  }
  return {};
}

Status no_memory(size_t bytes) {
  const MemoryLeft left = memory_left_to_process();
  if (left.bytes < bytes) return lacking(bytes, left);
  return {SENNIT_OUT_OF_RESOURCES,
          fmt::format("no memory for {}: the kernel refuses", format_bytes(bytes))};
}

}  // namespace sennit
