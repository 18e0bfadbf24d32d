// connection_manager.cpp: see transports/tcp/connection_manager.hpp.
#include "transports/tcp/connection_manager.hpp"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/process/forked.hpp"

namespace sennit::tcp {
namespace {

constexpr size_t kMaxGuests = 256;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kGuestTime = 5 * kSecond;
constexpr uint64_t kStarvedTime = kSecond;  // without a descriptor, before a connection is given up
constexpr uint64_t kEvictTime = kSecond / 4;  // strangers may hold the last descriptors so long
// of the timer, which runs only while something waits for it
constexpr uint64_t kTick = kSecond / 50;
constexpr uint64_t kFirstPause = kSecond / 50;  // before a call is repeated; doubles
constexpr int kAttempts = 8;                    // 2.5 s of pauses in all
constexpr int kBacklog = 1024;
constexpr int kAcceptsAtOnce = 64;

const char* remedy(int error) {
  switch (error) {
    case EMFILE:
      return " (this process may not open more files: raise `ulimit -n`)";
    case ENFILE:
      return " (the system may not open more files: raise fs.file-max)";
    case EADDRNOTAVAIL:
      return " (the address is not this host's, or no port is free: see SENNIT_INTERFACE and "
             "net.ipv4.ip_local_port_range)";
    default:
      return "";
  }
}

Status resource_error(const char* what, int error) {
  return {SENNIT_OUT_OF_RESOURCES,
          fmt::format("tcp: {}: {}{}", what, std::strerror(error), remedy(error))};
}

bool add_to_epoll(int epoll_fd, int fd, uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

// ---- opening ----

ConnectionManager::ConnectionManager(const TransportContext& context, int epoll_fd,
                                     ConnectionHandler& handler)
    : rank_(context.rank),
      size_(context.size),
      job_(context.job),
      secret_(context.secret),
      sealed_(context.sealed),
      epoll_fd_(epoll_fd),
      handler_(handler) {}

Result<std::unique_ptr<ConnectionManager>> ConnectionManager::open(const TransportContext& context,
                                                                   int epoll_fd,
                                                                   ConnectionHandler& handler) {
  const std::string where = context.host_interface.empty() ? "127.0.0.1" : context.host_interface;
  const std::optional<SocketAddress> address = SocketAddress::parse(where);
  if (!address)
    return invalid(fmt::format("tcp: '{}' is not a numeric IPv4 or IPv6 address", where));
  std::unique_ptr<ConnectionManager> manager(new ConnectionManager(context, epoll_fd, handler));
  sockaddr_storage storage;
  socklen_t length = address->fill(storage);
  manager->listener_ = open_guarded_stream(storage.ss_family);
  if (manager->listener_ < 0) return resource_error("making the listening socket", errno);
  if (bind(manager->listener_, reinterpret_cast<sockaddr*>(&storage), length) < 0 ||
      listen(manager->listener_, kBacklog) < 0)
    return resource_error(fmt::format("listening on {}", where).c_str(), errno);
  if (getsockname(manager->listener_, reinterpret_cast<sockaddr*>(&storage), &length) < 0)
    return resource_error("asking for the port", errno);
  manager->address_ = SocketAddress::of(storage);
  manager->timer_ =
      open_guarded([] { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); });
  if (manager->timer_ < 0 || !manager->hold_spare() ||
      !add_to_epoll(epoll_fd, manager->listener_, EPOLLIN, pack(EventSource::listener, 0)) ||
      !add_to_epoll(epoll_fd, manager->timer_, EPOLLIN, pack(EventSource::timer, 0)))
    return resource_error("making the timer", errno);
  return manager;
}

ConnectionManager::~ConnectionManager() {
  for (const Guest& guest : guests_) close_guarded(guest.fd);
  for (const auto& [peer, call] : calls_) close_guarded(call.fd);
  for (const int fd : {listener_, timer_, spare_}) close_guarded(fd);
}

void ConnectionManager::on_event(uint64_t data) {
  const uint32_t index = index_of(data);
  switch (source_of(data)) {
    case EventSource::listener:
      accept_guests();
      break;
    case EventSource::timer:
      on_timer();
      break;
    case EventSource::guest:
      if (index < guests_.size() && guests_[index].fd >= 0 &&
          data == pack(EventSource::guest, index, guests_[index].generation))
        drive_guest(index);
      break;
    case EventSource::call:
      drive_call(static_cast<int>(index));
      break;
    case EventSource::connection:
      break;
  }
  set_timer();
}

// ---- guests ----

void ConnectionManager::accept_guests() {
  for (int i = 0; i < kAcceptsAtOnce; i++) {  // the rest at the next event
    sockaddr_storage storage;
    socklen_t length = sizeof storage;
    const int fd = open_guarded([&] {
      return accept4(listener_, reinterpret_cast<sockaddr*>(&storage), &length,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    });
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE) return no_descriptor(errno);
      if (errno == ENOMEM || errno == ENOBUFS) pause_accepting(errno);
      if (errno == ECONNABORTED || errno == EINTR) continue;
      return;
    }
    auto place = std::find_if(guests_.begin(), guests_.end(),
                              [](const Guest& guest) { return guest.fd < 0; });
    if (place == guests_.end() && guests_.size() < kMaxGuests)
      place = guests_.emplace(guests_.end());
    if (place == guests_.end()) {
      place = std::min_element(guests_.begin(), guests_.end(), [](const Guest& a, const Guest& b) {
        return a.since_ns < b.since_ns;
      });
      dismiss(*place, "too many connections that prove nothing");
    }
    place->fd = fd;
    place->on_spare = !hold_spare();
    if (!place->on_spare) starved_since_ns_ = 0;
    place->generation++;
    place->since_ns = now_ns();
    place->handshake.emplace(Handshake::acceptor(config()));
    place->from = SocketAddress::of(storage).text();
    guests_used_++;
    const auto index = static_cast<uint32_t>(place - guests_.begin());
    if (!add_to_epoll(epoll_fd_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                      pack(EventSource::guest, index, place->generation)))
      dismiss(*place, std::strerror(errno));
  }
}

bool ConnectionManager::hold_spare() {
  if (spare_ >= 0) return true;
  spare_ = open_guarded([this] { return fcntl(timer_, F_DUPFD_CLOEXEC, 0); });
  return spare_ >= 0;
}

void ConnectionManager::no_descriptor(int error) {
  const uint64_t now = now_ns();
  if (starved_since_ns_ == 0) starved_since_ns_ = now;
  for (Guest& guest : guests_)
    if (guest.fd >= 0 && now - guest.since_ns > kEvictTime)
      dismiss(guest, "no file descriptors left");
  // The next accept() gets it, or what was just freed.
  if (now - starved_since_ns_ > kStarvedTime && spare_ >= 0)
    close_guarded(std::exchange(spare_, -1));
  pause_accepting(error);
}

void ConnectionManager::pause_accepting(int error) {
  // The listener stays readable, so it must leave the set, or waiting for it would spin.
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, listener_, nullptr);
  paused_ = true;
  const uint64_t now = now_ns();
  if (now - logged_pause_ns_ < kSecond) return;
  logged_pause_ns_ = now;
  log(LogLevel::warn, "tcp: cannot accept connections for now: {}{}", std::strerror(error),
      remedy(error));
}

void ConnectionManager::drive_guest(uint32_t index) {
  Guest& guest = guests_[index];
  Handshake& handshake = *guest.handshake;
  if (handshake.drive(guest.fd) == Handshake::State::proven) {
    const int peer = handshake.peer();
    if (guest.on_spare && handler_.wants_connection(peer)) {
      close_guarded(std::exchange(guest.fd, -1));
      guests_used_--;
      hang_up(peer);
      return handler_.on_call_failed(
          peer,
          resource_error(fmt::format("taking the connection of rank {}", peer).c_str(), EMFILE));
    }
    bool accept = handler_.wants_connection(peer);
    if (const auto own = calls_.find(peer); accept && own != calls_.end()) {
      accept = rank_ > peer;
      if (accept) abandon(peer);
    }
    handshake.decide(accept);
    // 88 bytes into an empty socket: if they do not fit the connection is of no use, and waiting
    // with a decision that is made would leave room for the other choice.
    if (handshake.drive(guest.fd) == Handshake::State::running)
      return dismiss(guest, "its connection is stuck");
  }
  switch (handshake.state()) {
    case Handshake::State::done: {
      const int fd = std::exchange(guest.fd, -1);
      guests_used_--;
      epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
      handler_.on_connection(handshake.peer(), fd, handshake);
      break;
    }
    case Handshake::State::declined:
      close_guarded(std::exchange(guest.fd, -1));
      guests_used_--;
      break;
    case Handshake::State::failed:
      dismiss(guest, handshake.status().text());
      break;
    default:
      break;
  }
}

void ConnectionManager::dismiss(Guest& guest, const std::string& why) {
  close_guarded(std::exchange(guest.fd, -1));
  guests_used_--;
  refuse(guest.from, why);
}

void ConnectionManager::refuse(const std::string& from, const std::string& why) {
  refused_++;
  refused_unlogged_++;
  const uint64_t now = now_ns();
  if (now - logged_refused_ns_ < kSecond) return;
  logged_refused_ns_ = now;
  log(LogLevel::warn, "tcp: refused {} connection{} to {}; the last from {}: {}", refused_unlogged_,
      refused_unlogged_ == 1 ? "" : "s", address_.text(), from, why);
  refused_unlogged_ = 0;
}

// ---- calls ----

void ConnectionManager::call(int peer, const SocketAddress& address) {
  const auto [entry, added] = calls_.try_emplace(peer);
  if (!added) return;
  entry->second.address = address;
  start(peer, entry->second);
  set_timer();
}

void ConnectionManager::hang_up(int peer) {
  const auto entry = calls_.find(peer);
  if (entry == calls_.end()) return;
  close_guarded(entry->second.fd);
  calls_.erase(entry);
}

// The peer will decline this call, or has: to close it now would look like a stranger's visit
// there.
void ConnectionManager::abandon(int peer) {
  OutgoingCall& call = calls_.at(peer);
  if (call.fd < 0) return hang_up(peer);
  call.abandoned = true;
}

void ConnectionManager::start(int peer, OutgoingCall& call) {
  call.attempts++;
  call.handshake.emplace(Handshake::connector(config(), peer));
  call.connected = false;
  sockaddr_storage storage;
  const socklen_t length = call.address.fill(storage);
  call.fd = open_guarded_stream(storage.ss_family);
  if (call.fd < 0) return repeat_or_fail(peer, call, resource_error("making a socket", errno));
  const int one = 1;
  setsockopt(call.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const int error = connect(call.fd, reinterpret_cast<sockaddr*>(&storage), length) < 0 ? errno : 0;
  if (error != 0 && error != EINPROGRESS && error != EINTR) return not_connected(peer, call, error);
  if (!add_to_epoll(epoll_fd_, call.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                    pack(EventSource::call, static_cast<uint32_t>(peer))))
    not_connected(peer, call, errno);
}

// A route or a neighbour may come back; who refuses is there and does not listen any more. Where
// nothing answers the kernel has called for two minutes by itself.
void ConnectionManager::not_connected(int peer, OutgoingCall& call, int error) {
  const Status status(SENNIT_LINK_FAILED,
                      fmt::format("connecting to rank {} at {}: {}{}", peer, call.address.text(),
                                  std::strerror(error), remedy(error)));
  if (error != ECONNREFUSED && error != ETIMEDOUT) return repeat_or_fail(peer, call, status);
  hang_up(peer);
  handler_.on_call_failed(peer, status);
}

void ConnectionManager::drive_call(int peer) {
  const auto entry = calls_.find(peer);
  if (entry == calls_.end() || entry->second.fd < 0) return;
  OutgoingCall& call = entry->second;
  if (call.abandoned) {
    if (call.handshake->drive(call.fd) != Handshake::State::running) hang_up(peer);
    return;
  }
  if (!call.connected) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(call.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return not_connected(peer, call, error);
    sockaddr_storage storage;
    length = sizeof storage;
    // not yet
    if (getpeername(call.fd, reinterpret_cast<sockaddr*>(&storage), &length) < 0) return;
    call.connected = true;
  }
  switch (call.handshake->drive(call.fd)) {
    case Handshake::State::done: {
      const int fd = std::exchange(call.fd, -1);
      const Handshake handshake = *call.handshake;
      epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
      calls_.erase(entry);
      handler_.on_connection(peer, fd, handshake);
      break;
    }
    case Handshake::State::declined:
      hang_up(peer);
      // A lower rank's own call is on its way. A higher one has no such reason to decline.
      if (rank_ < peer)
        handler_.on_call_failed(
            peer,
            Status(SENNIT_LINK_FAILED,
                   fmt::format("connecting to rank {}: it had a connection that broke", peer)));
      break;
    case Handshake::State::failed: {
      const Status status = call.handshake->status().with_context(
          fmt::format("connecting to rank {} at {}", peer, call.address.text()));
      if (call.handshake->connection_lost()) return repeat_or_fail(peer, call, status);
      hang_up(peer);
      handler_.on_call_failed(peer, status);
      break;
    }
    default:
      break;
  }
}

void ConnectionManager::repeat_or_fail(int peer, OutgoingCall& call, const Status& status) {
  close_guarded(std::exchange(call.fd, -1));
  if (call.attempts >= kAttempts) {
    calls_.erase(peer);
    return handler_.on_call_failed(peer, status);
  }
  call.next_ns = now_ns() + (kFirstPause << (call.attempts - 1));
}

// ---- time ----

void ConnectionManager::set_timer() {
  bool wanted = paused_ || guests_used_ > 0;
  if (!wanted)
    for (const auto& [peer, call] : calls_) wanted |= call.fd < 0;
  if (wanted == timer_set_) return;
  timer_set_ = wanted;
  itimerspec when{};
  if (wanted) when.it_value.tv_nsec = when.it_interval.tv_nsec = kTick;
  timerfd_settime(timer_, 0, &when, nullptr);
}

void ConnectionManager::on_timer() {
  uint64_t ticks;
  if (::read(timer_, &ticks, sizeof ticks) < 0) return;  // another event took it
  const uint64_t now = now_ns();
  if (paused_)
    paused_ = !add_to_epoll(epoll_fd_, listener_, EPOLLIN, pack(EventSource::listener, 0));
  for (Guest& guest : guests_)
    if (guest.fd >= 0 && now - guest.since_ns > kGuestTime)
      dismiss(guest, "it proved nothing within 5 s");
  std::vector<int> due;
  for (const auto& [peer, call] : calls_)
    if (call.fd < 0 && call.next_ns <= now) due.push_back(peer);
  for (const int peer : due)
    if (const auto entry = calls_.find(peer); entry != calls_.end()) start(peer, entry->second);
}

}  // namespace sennit::tcp
