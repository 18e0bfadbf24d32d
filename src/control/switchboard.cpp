// switchboard.cpp: see control/switchboard.hpp.
#include "control/switchboard.hpp"

#include <sys/epoll.h>

#include <utility>

#include <fmt/core.h>

#include "base/process/descriptors.hpp"

namespace sennit::control {
namespace {

// Where there are too many strangers, those go that have been here for this long; and for this long
// without even a greeting.
constexpr int64_t kStrangerEvictMs = 250;
constexpr int64_t kSilentEvictMs = 20;

}  // namespace

// ---- connections ----

Connection* Switchboard::connection(uint64_t id) const {
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second.get();
}

void Switchboard::for_each(const std::function<void(Channel&)>& visit) {
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

Channel* Switchboard::connect(const Address& address, Role role, int rank, int* error) {
  Result<int> fd = connect_to(address, error);
  if (!fd && spare_.give()) fd = connect_to(address, error);
  if (!fd) return nullptr;
  Connection& connection =
      add(*fd, Handshake::connector(handshake_config(), rank), role, rank, true);
  connection.other = address;
  return &connection;
}

void Switchboard::send(Channel& channel, const EncodedFrame& frame) {
  connection(channel).send(frame, self_.now_ms);
  counters_.frames_out++;
  if (self_.starting()) counters_.start_frames++;
}

void Switchboard::shut(Channel& channel) { connection(channel).shut(); }

void Switchboard::settle(Channel& channel, Role role, int rank) {
  strangers_.erase(channel.id);
  channel.role = role;
  channel.rank = rank;
  channel.deadline_ms = 0;
}

void Switchboard::drop(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  owner_->dropped(*it->second);
  strangers_.erase(id);
  connections_.erase(it);
}

void Switchboard::lost(uint64_t id, End end, const std::string& reason) {
  const Connection* const channel = connection(id);
  if (!channel) return;
  const Ending ending{channel->role,   channel->rank, channel->said_goodbye,
                      channel->joined, end,           reason};
  if (channel->role == Role::stranger || end == End::unproven || end == End::disagrees ||
      end == End::garbage || end == End::forged)
    refusals_.refused(*channel, reason, self_.now_ms);
  drop(id);
  owner_->ended(ending);
}

Address Switchboard::near_end(const Channel& channel) const {
  return local_address(static_cast<const Connection&>(channel).fd());
}

Address Switchboard::far_end(const Channel& channel) const {
  return remote_address(static_cast<const Connection&>(channel).fd());
}

void Switchboard::serve(uint64_t id) {
  std::vector<ReceivedFrame> messages;
  for (bool again = true; again;) {
    Connection* channel = connection(id);
    if (!channel) return;
    const bool was_open = channel->proven;
    messages.clear();
    channel->drive(&messages, self_.now_ms);
    if (channel->proven && !was_open) owner_->opened(*channel);
    again = false;
    for (const ReceivedFrame& message : messages) {
      channel = connection(id);
      if (!channel) return;
      // After its first frame a stranger has a role, and what else it sent can be looked at.
      again = channel->role == Role::stranger;
      counters_.frames_in++;
      owner_->arrived(*channel, message);
    }
  }
  if (const Connection* channel = connection(id); channel && channel->end() != End::none)
    lost(id, channel->end(), std::string(channel->reason()));
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
  refusals_.tick(now);
  if (!spare_.held() && self_.serving() && descriptors_left() > 1) spare_.hold();
}

std::string Switchboard::statistics() const {
  return fmt::format(
      "start frames {}, frames sent {}, frames received {}, connections {}, refused strangers {}",
      counters_.start_frames.load(), counters_.frames_out.load(), counters_.frames_in.load(),
      counters_.connections.load(), refusals_.count());
}

}  // namespace sennit::control
