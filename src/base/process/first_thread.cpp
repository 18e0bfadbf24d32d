// first_thread.cpp: see base/process/first_thread.hpp.
#include "base/process/first_thread.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>

namespace sennit {

// The state follows the name, which stands in brackets, may have some of its own, and is short.
// What comes after it are numbers.
bool first_thread_ready() {
  char text[64];
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t read = ::read(fd, text, sizeof text);
  ::close(fd);
  if (read <= 0) return false;
  const std::string_view stat(text, static_cast<size_t>(read));
  const size_t name_end = stat.rfind(')');
  return name_end != stat.npos && stat.substr(name_end).starts_with(") R");
}

}  // namespace sennit
