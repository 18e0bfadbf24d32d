// loop.cpp: the control thread: waits for sockets, commands and time; takes connections in, hands
// frames to the duties. Level-triggered epoll; a timer is a time that some duty names with due(),
// checked in tick().
//
// Time in which this process did not run (stopped, suspended, starved) is taken out of every count
// of silence: a rank that was stopped must not accuse its peers when it goes on.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/descriptors.hpp"
#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit::control {
namespace {

constexpr uint64_t kWakeId = 0, kListenerId = 1;
constexpr int64_t kClosingRetryMs = 5;  // until a descriptor is free for the next one to be told
constexpr int64_t kStarvedMs = 250;     // later than asked for by more than this: we did not run
constexpr int64_t kStrangerLogMs = 10'000;  // between two lines about strangers

}  // namespace

void ControlPlane::run() {
  begin_start();
  bool over = false;
  while (!over) {
    int64_t before = now_ms();
    const int64_t wait = std::clamp<int64_t>(next_due_ms_ - before, 0, heartbeat_ms_);
    epoll_event events[64];
    const int count = epoll_wait(epoll_fd_, events, 64, static_cast<int>(wait));
    now_ms_ = now_ms();
    if (const int64_t gap = now_ms_ - before - wait; gap > kStarvedMs) excuse(gap);

    for (int i = 0; i < count; i++) {
      const uint64_t id = events[i].data.u64;
      if (id == kWakeId) {
        uint64_t ignored;
        [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &ignored, sizeof ignored);
      } else if (id == kListenerId) {
        accept_all();
      } else {
        serve(id);
      }
    }
    std::vector<std::function<void()>> commands;
    {
      const std::lock_guard lock(mutex_);
      commands.swap(commands_);
    }
    for (const auto& command : commands) command();

    next_due_ms_ = now_ms_ + heartbeat_ms_;
    tick(now_ms_);
    for (auto& [id, connection] : connections_) watch(id, *connection);
    over = phase_ == Phase::closing && closing_since_ms_ != 0 &&
           ((connections_.empty() && !start_failed_) || now_ms_ - closing_since_ms_ >= closing_ms_);
    // A gap in the work of this very round (a callback that took long, a starved machine) counts as
    // well.
    before = now_ms();
    if (before - now_ms_ > kStarvedMs) excuse(before - now_ms_);
  }
  connections_.clear();
  if (listener_ >= 0) close_socket(listener_);
  listener_ = -1;
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (!started_)
    started_ = Status{SENNIT_INTERNAL, "the control thread ended before the start was complete"};
  changed_.notify_all();
}

void ControlPlane::tick(int64_t now) {
  tick_strangers(now);
  if (spare_fd_ < 0 && phase_ >= Phase::running && phase_ != Phase::closing &&
      descriptors_left() > 1)
    hold_spare();
  if (phase_ < Phase::running) tick_start(now);
  if (phase_ != Phase::closing) {
    tick_collectives(now);
    tick_tree(now);
    tick_failure(now);
    tick_calls(now);
  }
  if (phase_ == Phase::leaving) tick_leave(now);
  if (phase_ == Phase::closing && closing_since_ms_ != 0) due(closing_since_ms_ + closing_ms_);
}

void ControlPlane::excuse(int64_t gap) {
  for (auto& [id, connection] : connections_) {
    connection->last_in_ms += gap;
    connection->since_ms += gap;
    if (connection->deadline_ms) connection->deadline_ms += gap;
  }
  for (auto& [rank, suspect] : suspects_) suspect.since_ms += gap;
  for (auto& [rank, when] : orphans_) when += gap;
  next_orphan_ms_ += orphans_.empty() ? 0 : gap;
  if (seek_since_ms_) seek_since_ms_ += gap;
  calls_.excuse(gap);
}

HandshakeConfig ControlPlane::handshake_config() const {
  return {.secret = options_.secret,
          .purpose = "control",
          .job = 0,
          .self = rank_,
          .size = INT32_MAX,
          .sealed = options_.sealed};
}

Connection* ControlPlane::add(int fd, Handshake handshake, Role role, int peer, bool connecting) {
  const uint64_t id = next_id_++;
  auto connection =
      std::make_unique<Connection>(fd, std::move(handshake), role, peer, connecting, now_ms_);
  connection->id = id;
  epoll_event event{};
  event.events = connection->epoll_events = EPOLLIN | EPOLLOUT;
  event.data.u64 = id;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
  {
    const std::lock_guard lock(mutex_);
    counters_.connections++;
  }
  return (connections_[id] = std::move(connection)).get();
}

Connection* ControlPlane::connect(const Address& address, Role role, int peer, int* error) {
  Result<int> fd = connect_to(address, error);
  if (!fd && give_spare()) fd = connect_to(address, error);
  if (!fd) return nullptr;
  Connection* connection =
      add(*fd, Handshake::connector(handshake_config(), peer), role, peer, true);
  connection->other = address;
  return connection;
}

// One descriptor is kept for the moment when there are no others: to say so, to be told the end of
// a start, and to ask whether a rank lives.
void ControlPlane::hold_spare() {
  if (spare_fd_ >= 0) return;
  spare_fd_ = open_guarded([this] { return fcntl(wake_fd_, F_DUPFD_CLOEXEC, 0); });
}

bool ControlPlane::give_spare() {
  if (spare_fd_ < 0 || descriptors_left() > 0) return false;
  close_socket(std::exchange(spare_fd_, -1));
  return true;
}

Connection* ControlPlane::find(uint64_t id) {
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second.get();
}

void ControlPlane::watch(uint64_t id, Connection& connection) {
  const uint32_t wanted = EPOLLIN | (connection.wants_write() ? uint32_t{EPOLLOUT} : 0);
  if (wanted == connection.epoll_events) return;
  epoll_event event{};
  event.events = connection.epoll_events = wanted;
  event.data.u64 = id;
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, connection.fd(), &event);
}

void ControlPlane::serve(uint64_t id) {
  std::vector<Message> messages;
  for (bool again = true; again;) {
    Connection* connection = find(id);
    if (!connection) return;
    const bool was_open = connection->open();
    messages.clear();
    connection->drive(&messages, now_ms_);
    if (connection->open() && !was_open) opened(id, *connection);
    again = false;
    for (const Message& message : messages) {
      connection = find(id);
      if (!connection) return;
      // After its first frame a stranger has a role, and what else it sent can be looked at.
      again = connection->role == Role::stranger;
      dispatch(id, *connection, message);
    }
  }
  if (const Connection* connection = find(id); connection && connection->end() != End::none)
    lost(id, connection->end(), std::string(connection->reason()));
}

void ControlPlane::drop(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if (parent_ == id) parent_ = 0;
  if (const auto child = children_.find(it->second->rank);
      child != children_.end() && child->second == id)
    children_.erase(child);
  if (const auto waiting = enlisted_.find(it->second->rank);
      waiting != enlisted_.end() && waiting->second == id)
    enlisted_.erase(waiting);
  strangers_.erase(id);
  connections_.erase(it);
}

void ControlPlane::lost(uint64_t id, End end, const std::string& reason) {
  Connection* connection = find(id);
  if (!connection) return;
  const Role role = connection->role;
  const int peer = connection->rank;
  const bool quiet = connection->said_goodbye, attached = connection->joined;
  if (role == Role::stranger || end == End::unproven || end == End::disagrees ||
      end == End::garbage || end == End::forged)
    log_stranger(*connection, reason);
  drop(id);
  // Whoever has proved itself and is set up otherwise can never come: all are told now, not when
  // time is up.
  if (role == Role::stranger && end == End::disagrees && phase_ < Phase::running)
    return lost_in_start(role, peer, end, reason);
  if (phase_ == Phase::closing || role == Role::stranger || role == Role::visitor) return;
  if (phase_ < Phase::running) return lost_in_start(role, peer, end, reason);
  if (role == Role::probing) return probe_ended(peer, end, reason);
  // Frames may be lost, and what is done to this connection will be done to the next: the job ends,
  // and says why.
  if (end == End::forged) suspect(peer, kBroken, rank_, reason);
  if (role == Role::parent) return parent_lost(peer, attached, end, reason);
  if (role == Role::child && !quiet)
    suspect(peer, end == End::unreachable ? kSilent : kClosed, rank_, reason);
}

bool ControlPlane::listen(const Address& address, Status* error) {
  const Result<int> fd = listen_on(address);
  if (!fd) {
    *error = fd.status();
    return false;
  }
  use_listener(*fd);
  return true;
}

void ControlPlane::use_listener(int fd) {
  listener_ = fd;
  listener_port_ = local_address(fd).port;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerId;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, listener_, &event);
}

// Where there are too many: the oldest that has not greeted, which a rank does at once; else the
// oldest. Each gets its turn first, but a thousand that say nothing must not keep a rank out for
// long: while it waits, those that it looks for may leave, and it would take them for dead. 0:
// wait.
uint64_t ControlPlane::stranger_to_evict() {
  for (const uint64_t id : strangers_)  // ids ascend
    if (const Connection* one = find(id);
        !one->greeted() && now_ms_ - one->since_ms >= kSilentEvictMs)
      return id;
  const uint64_t oldest = *strangers_.begin();
  return now_ms_ - find(oldest)->since_ms >= kStrangerEvictMs ? oldest : 0;
}

void ControlPlane::accept_all() {
  for (int taken = 0; taken < 64; taken++) {
    if (strangers_.size() >= kStrangers) {
      const uint64_t one = stranger_to_evict();
      if (one == 0) return pause_listener(true);
      lost(one, End::closed, "too many connections that have not proved themselves");
      continue;
    }
    Address from;
    const int fd = accept_from(listener_, &from);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
      if (!strangers_.empty()) {
        const uint64_t one = stranger_to_evict();
        if (one == 0) return pause_listener(true);
        lost(one, End::closed, "no file descriptors left");
        continue;
      }
      if (phase_ < Phase::running && complaint_.ok())
        cannot_take_part(
            {SENNIT_OUT_OF_RESOURCES,
             fmt::format("{}: no file descriptors left to take the connections of other ranks; {}",
                         describe_rank(rank_), kDescriptorRemedy)});
      if (phase_ == Phase::closing) {  // the others are told one after the other
        if (give_spare()) continue;
        return pause_listener(true);
      }
      if (now_ms_ - descriptor_log_ms_ >= kStrangerLogMs) {
        log(LogLevel::warn, "no file descriptors left to take a connection; {}", kDescriptorRemedy);
        descriptor_log_ms_ = now_ms_;
      }
      return pause_listener(true);
    }
    if (fd < 0) return;
    Connection* connection =
        add(fd, Handshake::acceptor(handshake_config()), Role::stranger, -1, false);
    connection->deadline_ms = now_ms_ + kStrangerMs;
    connection->other = from;
    strangers_.insert(connection->id);
    serve(connection->id);  // who waited in the kernel's queue has greeted meanwhile
  }
}

void ControlPlane::pause_listener(bool paused) {
  listener_paused_ = paused;
  epoll_event event{};
  event.events = paused ? 0 : uint32_t{EPOLLIN};
  event.data.u64 = kListenerId;
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, listener_, &event);
  if (paused) due(now_ms_ + (phase_ == Phase::closing ? kClosingRetryMs : kSilentEvictMs));
}

void ControlPlane::tick_strangers(int64_t now) {
  std::vector<uint64_t> late;
  for (const auto& [id, connection] : connections_) {
    if (connection->deadline_ms == 0) continue;
    if (now >= connection->deadline_ms)
      late.push_back(id);
    else
      due(connection->deadline_ms);
  }
  for (const uint64_t id : late) lost(id, End::unreachable, "no answer in time");
  if (listener_paused_ && listener_ >= 0) pause_listener(false);
  if (strangers_unlogged_ > 0 && now - stranger_log_ms_ >= kStrangerLogMs) {
    log(LogLevel::warn, "refused {} more connections that are not of this job",
        strangers_unlogged_);
    stranger_log_ms_ = now;
    strangers_unlogged_ = 0;
  }
}

// The first few are told one by one, then their number every ten seconds.
void ControlPlane::log_stranger(const Connection& connection, const std::string& reason) {
  uint64_t so_far;
  {
    const std::lock_guard lock(mutex_);
    so_far = ++counters_.refused;
  }
  if (so_far > 5 && now_ms_ - stranger_log_ms_ < kStrangerLogMs) {
    strangers_unlogged_++;
    return;
  }
  stranger_log_ms_ = now_ms_;
  log(LogLevel::warn, "refused a connection {} {}: {}", connection.outgoing ? "to" : "from",
      connection.other.text(), reason);
}

void ControlPlane::send(Connection& connection, const Buffer& buffer) {
  connection.send(buffer, now_ms_);
  const std::lock_guard lock(mutex_);
  counters_.frames_out++;
  if (phase_ < Phase::running) counters_.start_frames++;
}

bool ControlPlane::send_up(const Buffer& buffer) {
  Connection* parent = find(parent_);
  if (!parent || !parent->joined) return false;
  send(*parent, buffer);
  return true;
}

void ControlPlane::flood_down(const Buffer& buffer, uint64_t except) {
  for (const auto& [child, id] : children_)
    if (Connection* connection = id == except ? nullptr : find(id)) send(*connection, buffer);
}

std::string ControlPlane::describe_rank(int rank) const {
  const auto index = static_cast<size_t>(rank);
  if (index >= members_.size() || members_[index].pid == 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (host {}, pid {})", rank, members_[index].host, members_[index].pid);
}

}  // namespace sennit::control
