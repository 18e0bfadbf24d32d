// file_room.hpp: gives a file its length and its room without what may come to a process on that
// way. A file that grows beyond RLIMIT_FSIZE (ulimit -f) ends the process with SIGXFSZ. And by its
// manual page fallocate() may end with EINTR where the thread takes a signal, be it a profiler's
// timer: that is asked for with the thread's signals blocked, because who begins anew may be broken
// off anew.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/process/signals_blocked.hpp"

namespace sennit {

// 0, or the error: EFBIG where the limit does not let a file become that long.
inline int file_may_be(off_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && static_cast<rlim_t>(bytes) > limit.rlim_cur ? EFBIG
                                                                                             : 0;
}

// As ftruncate(), for what makes a file longer; 0 or the error.
inline int give_length(int fd, off_t bytes) {
  if (const int error = file_may_be(bytes)) return error;
  return ftruncate(fd, bytes) == 0 ? 0 : errno;
}

// As posix_fallocate(); 0 or the error.
inline int give_room(int fd, off_t first, off_t bytes) {
  if (const int error = file_may_be(first + bytes)) return error;
  const SignalsBlocked blocked;
  return posix_fallocate(fd, first, bytes);
}

// What such an error is, and the remedy.
inline std::string room_error(int error) {
  const std::string remedy = error == EFBIG ? ": raise the limit of a file's size (ulimit -f)" : "";
  return std::strerror(error) + remedy;
}

}  // namespace sennit
