// reserved_port.hpp: a MASTER_PORT of the loopback for a job of local processes, that no other job
// takes.
//
// Rank 0 listens on the port above it. Both stay bound here, and so out of the hands of others,
// while the ranks run: of two sockets with SO_REUSEADDR on one port, one may listen. To choose,
// they are first bound without, which fails where anybody else has so much as reserved one: two
// jobs that start at once must not meet. Taken from below the usual range of ephemeral ports, where
// a connection that has just ended may be in the way.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <random>

namespace sennit {

class ReservedPort {
 public:
  ReservedPort() {
    std::random_device random;
    for (int attempt = 0; attempt < kAttempts && number_ == 0; attempt++) {
      const auto port = static_cast<uint16_t>(kFirst + random() % (kLast - kFirst));
      if (reserve(port, 0) && reserve(static_cast<uint16_t>(port + 1), 1)) number_ = port;
      if (number_ == 0) release();
    }
  }
  ~ReservedPort() { release(); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  uint16_t number() const { return number_; }  // 0: there is none

 private:
  static constexpr uint16_t kFirst = 10240, kLast = 32767;
  static constexpr int kAttempts = 200;  // of some 22,000 ports, most of them free

  bool reserve(uint16_t port, size_t which) {
    const int alone = bound_to(port, INADDR_ANY, false);
    if (alone < 0) return false;
    close(alone);
    fds_[which] = bound_to(port, INADDR_LOOPBACK, true);
    return fds_[which] >= 0;
  }

  void release() {
    for (int& fd : fds_) {
      if (fd < 0) continue;
      close(fd);
      fd = -1;
    }
  }

  static int bound_to(uint16_t port, in_addr_t to, bool reusable) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = reusable;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(to);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      return fd;
    if (fd >= 0) close(fd);
    return -1;
  }

  std::array<int, 2> fds_{-1, -1};
  uint16_t number_ = 0;
};

}  // namespace sennit
