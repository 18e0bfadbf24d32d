// poller.hpp: what the control thread sleeps on: sockets by number, and a bell that any thread may
// ring. Level-triggered epoll.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace sennit::control {

class Poller {
 public:
  Poller() = default;
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // False: errno says why.
  bool open();
  // `events` as of epoll; `id` is what wait() says of this descriptor, and is not 0.
  void add(int fd, uint64_t id, uint32_t events);
  void change(int fd, uint64_t id, uint32_t events);
  void remove(int fd);
  // The ids of what is ready, at most kMostReady of them; nothing when the time is up or the bell
  // rang.
  std::vector<uint64_t> wait(int64_t ms);
  // Any thread, also before wait().
  void ring();
  // Another descriptor that holds nothing, to be kept until one is needed; -1 and errno.
  int spare_descriptor() const;

 private:
  static constexpr int kMostReady = 64;
  int epoll_fd_ = -1, bell_fd_ = -1;
};

}  // namespace sennit::control
