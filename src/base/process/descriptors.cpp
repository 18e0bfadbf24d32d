// descriptors.cpp: see base/process/descriptors.hpp.
#include "base/process/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fmt/core.h>

#include "base/log.hpp"

namespace sennit {
namespace {

rlimit limits() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = limit.rlim_max = 1024;
  return limit;
}

}  // namespace

size_t descriptors_left() {
  const rlim_t limit = limits().rlim_cur;
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return errno == EMFILE || errno == ENFILE ? 0 : static_cast<size_t>(limit);
  rlim_t open = 0;
  while (const dirent* entry = readdir(folder))
    // The limit is one on numbers: what is open beyond it does not count.
    open += entry->d_name[0] != '.' && std::strtoull(entry->d_name, nullptr, 10) < limit;
  closedir(folder);
  return static_cast<size_t>(limit - std::min(limit, open - 1));  // one was the folder itself
}

size_t reserve_descriptors(size_t wanted) {
  size_t left = descriptors_left();
  rlimit limit = limits();
  if (left >= wanted || limit.rlim_cur >= limit.rlim_max) return left;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, before + (wanted - left));
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return left;
  log(LogLevel::info, "raised this process's limit of open files (ulimit -n) from {} to {}", before,
      limit.rlim_cur);
  return descriptors_left();
}

std::string descriptors_lacking(const std::string& what, size_t needed, size_t left) {
  return fmt::format("no file descriptors left for {} (it needs {}, of {} there are {} left); {}",
                     what, needed, limits().rlim_cur, left, kDescriptorRemedy);
}

int off_standard_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) return fd;  // no other is left
  ::close(fd);
  return moved;
}

}  // namespace sennit
