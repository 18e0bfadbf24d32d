// entrance.cpp: see control/entrance.hpp.
#include "control/entrance.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/process/descriptors.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kPauseMs = 20;        // for strangers to get on or go
constexpr int64_t kClosingRetryMs = 5;  // until a descriptor is free for the next one to be told
constexpr int64_t kLogMs = 10'000;      // between two lines about what it cannot take in
constexpr int kMostAcceptedPerRound = 64;

}  // namespace

Entrance::~Entrance() {
  for (const int fd : {listener_, former_listener_}) close_socket(fd);
}

Status Entrance::open(const Address& address) {
  const Result<int> fd = listen_on(address);
  if (fd) take_over(*fd);
  return fd.status();
}

void Entrance::take_over(int listening_fd) {
  listener_ = listening_fd;
  port_ = local_address(listening_fd).port;
  poller_.add(listener_, kId, EPOLLIN);
}

Status Entrance::move() {
  Address own = local_address(listener_);
  own.port = 0;
  former_listener_ = std::exchange(listener_, -1);
  poller_.remove(former_listener_);
  ::shutdown(former_listener_, SHUT_RDWR);
  return open(own);
}

void Entrance::close() {
  if (listener_ >= 0) close_socket(std::exchange(listener_, -1));
}

// Makes room for one more. False: it has to wait.
bool Entrance::evict(const char* reason) {
  const uint64_t one = switchboard_.stranger_to_evict();
  if (one == 0) return false;
  switchboard_.lost(one, End::closed, reason);
  return true;
}

// There is no descriptor for whoever knocks. True: there is one now.
bool Entrance::wait_for_descriptors() {
  if (switchboard_.strangers() > 0) return evict("no file descriptors left");
  switchboard_.owner().out_of_descriptors();
  if (self_.phase == Phase::closing)  // the others are told one after the other
    return switchboard_.spare_descriptor().give();
  warn(std::string("no file descriptors left to take a connection; ") + kDescriptorRemedy);
  return false;
}

void Entrance::warn(const std::string& text) {
  if (self_.now_ms - log_ms_ < kLogMs) return;
  log(LogLevel::warn, "{}", text);
  log_ms_ = self_.now_ms;
}

// What one of them says may close this door at once, and so may what came before in the same round.
void Entrance::serve() {
  for (int taken = 0; is_open() && taken < kMostAcceptedPerRound; taken++) {
    if (switchboard_.strangers() >= kMostStrangers) {
      if (!evict("too many connections that have not proved themselves")) return pause();
      continue;
    }
    Address from;
    const int fd = accept_from(listener_, &from);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      if (!wait_for_descriptors()) return pause();
      continue;
    }
    if (fd < 0) {
      if (accept_fails_again(errno)) {
        warn(std::string("cannot take a connection: ") + std::strerror(errno));
        pause();
      }
      return;
    }
    switchboard_.take_in(fd, from);
  }
}

void Entrance::pause() {
  paused_ = true;
  resume_ms_ = self_.now_ms + (self_.phase == Phase::closing ? kClosingRetryMs : kPauseMs);
  strangers_at_pause_ = switchboard_.strangers();
  poller_.change(listener_, kId, 0);
}

void Entrance::resume() {
  paused_ = false;
  poller_.change(listener_, kId, EPOLLIN);
}

// Whoever knocks meanwhile would wake the thread again and again.
void Entrance::tick() {
  if (!paused_ || listener_ < 0) return;
  if (self_.now_ms >= resume_ms_ || switchboard_.strangers() < strangers_at_pause_)
    resume();
  else
    self_.due(resume_ms_);
}

}  // namespace sennit::control
