// poller.cpp: see control/poller.hpp.
#include "control/poller.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/process/forked.hpp"

namespace sennit::control {
namespace {

constexpr uint64_t kBellId = 0;

epoll_event event_of(uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return event;
}

}  // namespace

Poller::~Poller() {
  for (const int fd : {bell_fd_, epoll_fd_}) close_guarded(fd);
}

bool Poller::open() {
  epoll_fd_ = open_guarded([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (epoll_fd_ < 0) return false;
  bell_fd_ = open_guarded([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (bell_fd_ < 0) return false;
  epoll_event event = event_of(kBellId, EPOLLIN);
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, bell_fd_, &event) == 0;
}

void Poller::add(int fd, uint64_t id, uint32_t events) {
  epoll_event event = event_of(id, events);
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
}

void Poller::change(int fd, uint64_t id, uint32_t events) {
  epoll_event event = event_of(id, events);
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd) { epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

std::vector<uint64_t> Poller::wait(int64_t ms) {
  epoll_event events[kMostReady];
  const int count = epoll_wait(epoll_fd_, events, kMostReady, static_cast<int>(ms));
  std::vector<uint64_t> ready;
  for (int i = 0; i < count; i++) {
    const uint64_t id = events[i].data.u64;  // a copy, since an epoll_event is packed
    if (id != kBellId) {
      ready.push_back(id);
      continue;
    }
    uint64_t ignored;
    [[maybe_unused]] const ssize_t got = ::read(bell_fd_, &ignored, sizeof ignored);
  }
  return ready;
}

void Poller::ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_fd_, &one, sizeof one);
}

int Poller::spare_descriptor() const {
  return open_guarded([this] { return fcntl(bell_fd_, F_DUPFD_CLOEXEC, 0); });
}

}  // namespace sennit::control
