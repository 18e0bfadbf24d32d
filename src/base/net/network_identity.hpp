// network_identity.hpp: tells the network of this process from every other one of this machine.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include <fmt/core.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace sennit {

// The network namespace's cookie, which the kernel gives out once until the machine starts again
// (Linux 5.14). Before, its inode's number, which a later namespace may get anew.
inline std::string network_identity() {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool told = fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0;
  if (fd >= 0) close(fd);
  if (told) return fmt::format("cookie {}", cookie);
  struct stat net = {};
  stat("/proc/self/ns/net", &net);
  return fmt::format("inode {}", net.st_ino);
}

}  // namespace sennit
