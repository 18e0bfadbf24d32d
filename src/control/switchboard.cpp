// switchboard.cpp: see control/switchboard.hpp.
#include "control/switchboard.hpp"

#include <sys/epoll.h>

#include <utility>

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/process/descriptors.hpp"

namespace sennit::control {
namespace {

// Where there are too many strangers, those go that have been here for this long; and for this long
// without even a greeting.
constexpr int64_t kStrangerEvictMs = 250;
constexpr int64_t kSilentEvictMs = 20;
constexpr int64_t kStrangerLogMs = 10'000;  // between two lines about strangers
constexpr uint64_t kStrangersNamed = 5;     // one by one

}  // namespace

Switchboard::~Switchboard() { close_socket(spare_fd_); }

// ---- connections ----

Connection* Switchboard::connection(uint64_t id) const {
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second.get();
}

void Switchboard::for_each(const std::function<void(Link&)>& visit) {
  for (const auto& [id, connection] : connections_) visit(*connection);
}

HandshakeConfig Switchboard::handshake_config() const {
  return {.secret = self_.options.secret,
          .purpose = "control",
          .job = 0,
          .self = self_.rank,
          .size = INT32_MAX,
          .sealed = self_.options.sealed};
}

Connection& Switchboard::add(int fd, Handshake handshake, Role role, int rank, bool connecting) {
  auto connection =
      std::make_unique<Connection>(fd, std::move(handshake), role, rank, connecting, self_.now_ms);
  connection->id = next_id_++;
  connection->epoll_events = EPOLLIN | EPOLLOUT;
  poller_.add(fd, connection->id, connection->epoll_events);
  counters_.connections++;
  return *(connections_[connection->id] = std::move(connection));
}

Link* Switchboard::connect(const Address& address, Role role, int rank, int* error) {
  Result<int> fd = connect_to(address, error);
  if (!fd && give_spare_descriptor()) fd = connect_to(address, error);
  if (!fd) return nullptr;
  Connection& connection =
      add(*fd, Handshake::connector(handshake_config(), rank), role, rank, true);
  connection.other = address;
  return &connection;
}

void Switchboard::send(Link& link, const Buffer& frame) {
  connection(link).send(frame, self_.now_ms);
  counters_.frames_out++;
  if (self_.starting()) counters_.start_frames++;
}

void Switchboard::shut(Link& link) { connection(link).shut(); }

void Switchboard::settle(Link& link, Role role, int rank) {
  strangers_.erase(link.id);
  link.role = role;
  link.rank = rank;
  link.deadline_ms = 0;
}

void Switchboard::drop(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  owner_->dropped(*it->second);
  strangers_.erase(id);
  connections_.erase(it);
}

void Switchboard::lost(uint64_t id, End end, const std::string& reason) {
  const Connection* const link = connection(id);
  if (!link) return;
  const Ending ending{link->role, link->rank, link->said_goodbye, link->joined, end, reason};
  if (link->role == Role::stranger || end == End::unproven || end == End::disagrees ||
      end == End::garbage || end == End::forged)
    log_stranger(*link, reason);
  drop(id);
  owner_->ended(ending);
}

Address Switchboard::near_end(const Link& link) const {
  return local_address(static_cast<const Connection&>(link).fd());
}

Address Switchboard::far_end(const Link& link) const {
  return remote_address(static_cast<const Connection&>(link).fd());
}

void Switchboard::serve(uint64_t id) {
  std::vector<Message> messages;
  for (bool again = true; again;) {
    Connection* link = connection(id);
    if (!link) return;
    const bool was_open = link->proven;
    messages.clear();
    link->drive(&messages, self_.now_ms);
    if (link->proven && !was_open) owner_->opened(*link);
    again = false;
    for (const Message& message : messages) {
      link = connection(id);
      if (!link) return;
      // After its first frame a stranger has a role, and what else it sent can be looked at.
      again = link->role == Role::stranger;
      counters_.frames_in++;
      owner_->arrived(*link, message);
    }
  }
  if (const Connection* link = connection(id); link && link->end() != End::none)
    lost(id, link->end(), std::string(link->reason()));
}

void Switchboard::watch() {
  for (const auto& [id, connection] : connections_) {
    const uint32_t wanted = EPOLLIN | (connection->wants_write() ? uint32_t{EPOLLOUT} : 0);
    if (wanted == connection->epoll_events) continue;
    connection->epoll_events = wanted;
    poller_.change(connection->fd(), id, wanted);
  }
}

void Switchboard::excuse(int64_t gap_ms) {
  for (const auto& [id, connection] : connections_) {
    connection->last_in_ms += gap_ms;
    connection->since_ms += gap_ms;
    if (connection->deadline_ms) connection->deadline_ms += gap_ms;
  }
}

// ---- the spare descriptor ----

// To tell that there are no others, to be told the end of a start, and to ask whether a rank lives.
bool Switchboard::hold_spare_descriptor() {
  if (spare_fd_ < 0) spare_fd_ = poller_.spare_descriptor();
  return spare_fd_ >= 0;
}

bool Switchboard::give_spare_descriptor() {
  if (spare_fd_ < 0 || descriptors_left() > 0) return false;
  close_socket(std::exchange(spare_fd_, -1));
  return true;
}

// ---- strangers ----

// Where there are too many: the oldest that has not greeted, which a rank does at once; else the
// oldest. Each gets its turn first, but a thousand that say nothing must not keep a rank out for
// long: while it waits, those that it looks for may leave, and it would take them for dead. 0:
// wait.
uint64_t Switchboard::stranger_to_evict() const {
  for (const uint64_t id : strangers_)  // ids ascend
    if (const Connection* one = connection(id);
        !one->greeted() && self_.now_ms - one->since_ms >= kSilentEvictMs)
      return id;
  const uint64_t oldest = *strangers_.begin();
  return self_.now_ms - connection(oldest)->since_ms >= kStrangerEvictMs ? oldest : 0;
}

void Switchboard::take_in(int fd, const Address& from) {
  Connection& connection =
      add(fd, Handshake::acceptor(handshake_config()), Role::stranger, -1, false);
  connection.deadline_ms = self_.now_ms + kStrangerMs;
  connection.other = from;
  strangers_.insert(connection.id);
  serve(connection.id);  // who waited in the kernel's queue has greeted meanwhile
}

void Switchboard::tick() {
  const int64_t now = self_.now_ms;
  std::vector<uint64_t> late;
  for (const auto& [id, connection] : connections_) {
    if (connection->deadline_ms == 0) continue;
    if (now >= connection->deadline_ms)
      late.push_back(id);
    else
      self_.due(connection->deadline_ms);
  }
  for (const uint64_t id : late) lost(id, End::unreachable, "no answer in time");
  if (strangers_unlogged_ > 0 && now - stranger_log_ms_ >= kStrangerLogMs) {
    log(LogLevel::warn, "refused {} more connections that are not of this job",
        strangers_unlogged_);
    stranger_log_ms_ = now;
    strangers_unlogged_ = 0;
  }
  if (spare_fd_ < 0 && self_.serving() && descriptors_left() > 1) hold_spare_descriptor();
}

// The first few are told one by one, then their number every ten seconds.
void Switchboard::log_stranger(const Link& link, const std::string& reason) {
  const uint64_t so_far = ++counters_.refused;
  if (so_far > kStrangersNamed && self_.now_ms - stranger_log_ms_ < kStrangerLogMs) {
    strangers_unlogged_++;
    return;
  }
  stranger_log_ms_ = self_.now_ms;
  log(LogLevel::warn, "refused a connection {} {}: {}", link.outgoing ? "to" : "from",
      link.other.text(), reason);
}

std::string Switchboard::statistics() const {
  return fmt::format(
      "start frames {}, frames sent {}, frames received {}, connections {}, refused strangers {}",
      counters_.start_frames.load(), counters_.frames_out.load(), counters_.frames_in.load(),
      counters_.connections.load(), counters_.refused.load());
}

}  // namespace sennit::control
