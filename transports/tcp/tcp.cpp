// tcp.cpp: the tcp transport: peers, their connections, and when bytes move over them. What
// messages mean is in transports/tcp/messages.hpp.
//
// Readiness is edge-triggered epoll: no epoll_ctl after a connection is made. Memory: 64 KiB per
// connection. Cost of a small message: one sendmsg, one epoll_wait and one recvmsg. Failure: a
// connection that ends is one PeerEvent and is not made again.
#include "transports/tcp/tcp.hpp"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/options.hpp"
#include "base/process/forked.hpp"
#include "transports/tcp/overhead.hpp"

namespace sennit::tcp {
namespace {

// Bytes that the kernel holds and has not sent yet, at most. Deeper queues delay what matters more
// by now; shallower ones run dry while this process waits for a core (10 ms at 400 Mbit/s).
constexpr int kUnsentBytes = 512 * 1024;
constexpr uint64_t kLingerNs = 1'000'000'000;
constexpr size_t kIgnoredBytes = 4096;  // at a time, of what a peer still sends to the end
constexpr int kEventsAtOnce = 64;
constexpr size_t kMessagesPerWindow = 4;  // at the least, of the largest that go at once
// A peer whose host is gone without a word sends nothing, and who only waits for it would do so for
// ever. One that is merely stopped answers: its kernel does.
constexpr int kKeepAliveIdleSeconds = 60;
constexpr int kKeepAliveIntervalSeconds = 15;
constexpr int kKeepAliveProbes = 4;

size_t eager_of(const TransportContext& context) {
  return std::min(context.eager_bytes, kMaxEagerBytes);
}

}  // namespace

Tcp::Tcp(const TransportContext& context)
    : window_bytes_(std::max(kWindowBytes, kMessagesPerWindow * eager_cost(eager_of(context)))),
      sealed_(context.sealed),
      interface_(context.host_interface),
      peers_(static_cast<size_t>(context.size)),
      messages_(eager_of(context), returns_) {}

Result<std::unique_ptr<Transport>> Tcp::make(const TransportContext& context) {
  std::unique_ptr<Tcp> tcp(new Tcp(context));
  tcp->epoll_fd_ = open_guarded([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (tcp->epoll_fd_ < 0)
    return Status(SENNIT_OUT_OF_RESOURCES,
                  fmt::format("tcp: epoll_create1: {} (raise `ulimit -n`)", std::strerror(errno)));
  Result<std::unique_ptr<ConnectionManager>> manager =
      ConnectionManager::open(context, tcp->epoll_fd_, *tcp);
  if (!manager) return manager.status();
  tcp->manager_ = std::move(*manager);
  return std::unique_ptr<Transport>(std::move(tcp));
}

Tcp::~Tcp() {
  linger();
  manager_.reset();
  for (RemotePeer& peer : peers_) peer.connection.reset();
  close_guarded(epoll_fd_);
}

// Every way to close a connection but that of the end, when nobody asks any more.
void Tcp::shut(PeerConnection& connection) {
  kernel_.remove(connection.peer());
  connection.shut();
}

// Sends were handed back when their bytes were with us or the kernel. Closing a socket that has
// unread bytes would throw them away, so: say that nothing more comes, and read until the peer has
// all of it.
void Tcp::linger() {
  const uint64_t end = now_ns() + kLingerNs;
  std::vector<PeerConnection*> open;
  for (const int peer : in_use_)
    if (at(peer).connection->is_open()) open.push_back(at(peer).connection.get());
  // what was not begun
  for (PeerConnection* connection : open)
    connection->take_sends_if([](auto&) { return true; }, [](auto&) {});
  std::vector<bool> said(open.size(), false);
  size_t left = open.size();
  std::vector<pollfd> waits(open.size());
  while (left > 0 && now_ns() < end) {
    for (size_t i = 0; i < open.size(); i++) {
      PeerConnection* connection = open[i];
      waits[i] = {-1, POLLIN, 0};
      if (!connection) continue;
      bool more = false;
      connection->unblock();
      const bool ok = said[i] || connection->write(more).ok();
      if (ok && !said[i] && !more && !connection->has_staged())
        said[i] = shutdown(connection->fd(), SHUT_WR) == 0;
      char ignored[kIgnoredBytes];
      ssize_t got = 1;
      while (got > 0) got = ::recv(connection->fd(), ignored, sizeof ignored, MSG_DONTWAIT);
      int unsent = 0;
      if (ioctl(connection->fd(), TIOCOUTQ, &unsent) < 0) unsent = 0;
      const bool over = !ok || got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
      if (over || (said[i] && unsent <= 1)) {  // the end itself counts one
        shut(*connection);
        open[i] = nullptr;
        left--;
      } else {
        waits[i].fd = connection->fd();
      }
    }
    if (left > 0) poll(waits.data(), waits.size(), 1);
  }
}

// ---- peers ----

Reach Tcp::reach(int, std::span<const std::byte> address) {
  const std::optional<SocketAddress> decoded = SocketAddress::decode(address);
  return decoded && decoded->v6 == manager_->address().v6 ? Reach::network : Reach::none;
}

std::string Tcp::obstacle() const {
  return fmt::format(
      "this rank is at {}, and that one at an {} address: SENNIT_INTERFACE can name the same "
      "network on all ranks",
      manager_->address().text(), manager_->address().v6 ? "IPv4" : "IPv6");
}

Status Tcp::add_peer(int peer, std::span<const std::byte> address) {
  const std::optional<SocketAddress> decoded = SocketAddress::decode(address);
  if (!decoded) return invalid(fmt::format("tcp: the address of rank {} is malformed", peer));
  at(peer).address = *decoded;
  at(peer).known = true;
  return {};
}

// The connection to a peer; its connection is on its way at the latest now.
PeerConnection& Tcp::connection_to(int number) {
  RemotePeer& peer = at(number);
  if (!peer.connection) {
    peer.connection = std::make_unique<PeerConnection>(number, window_bytes_, messages_);
    in_use_.push_back(number);
  }
  return *peer.connection;
}

bool Tcp::wants_connection(int number) {
  const RemotePeer& peer = at(number);
  return !peer.broken && peer.failed.ok() && !(peer.connection && peer.connection->is_open());
}

void Tcp::on_connection(int number, int fd, const Handshake& handshake) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  if (const int buffer =
          static_cast<int>(std::min<int64_t>(option_integer("SENNIT_TCP_BUFFER_BYTES"), 1 << 30));
      buffer > 0)
    set(SOL_SOCKET, SO_SNDBUF, buffer);
  PeerConnection& connection = connection_to(number);
  connection.open(fd, handshake.seal_keys());
  kernel_.add(number, fd);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = pack(EventSource::connection, static_cast<uint32_t>(number));
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) < 0)
    return break_connection(
        number,
        Status(SENNIT_OUT_OF_RESOURCES, fmt::format("tcp: watching the connection to rank {}: {}",
                                                    number, std::strerror(errno))));
  flush(connection);
}

void Tcp::break_connection(int number, const Status& status) {
  RemotePeer& peer = at(number);
  if (peer.connection) shut(*peer.connection);
  if (peer.broken || !peer.failed.ok()) return;
  peer.broken = true;
  returns_.add_event(number, status);
}

// ---- messages ----

const Status* Tcp::refusal(const MessageRequest& request) const {
  const RemotePeer& peer = peers_[static_cast<size_t>(request.peer)];
  return peer.failed.ok() ? messages_.cancelled(request.key.comm) : &peer.failed;
}

void Tcp::send(SendRequest& request) {
  request.ready_ns = request.first_ns = 0;
  if (const Status* refused = refusal(request)) return returns_.add(request, *refused);
  PeerConnection& connection = connection_to(request.peer);
  messages_.send(connection, request);
  flush(connection);
}

void Tcp::recv(RecvRequest& request) {
  request.exposed = nullptr;
  request.ready_ns = request.first_ns = 0;
  if (const Status* refused = refusal(request)) return returns_.add(request, *refused);
  PeerConnection& connection = connection_to(request.peer);
  if (messages_.recv(connection, request)) flush(connection);
}

// Writes what is queued; calls the peer if there is no connection yet.
void Tcp::flush(PeerConnection& connection) {
  RemotePeer& peer = at(connection.peer());
  if (!connection.is_open()) {
    if (!peer.broken && peer.failed.ok() && peer.known)
      manager_->call(connection.peer(), peer.address);
    return;
  }
  bool more = false;
  if (const Status status = connection.write(more); !status.ok()) {
    // The peer has closed, perhaps after its last words, which are still to be read.
    more = true;
    while (more) {
      more = false;
      if (!connection.read(true, more).ok()) break;
    }
    return break_connection(connection.peer(), status);
  }
  if (more) mark_busy(connection);
}

void Tcp::read(PeerConnection& connection, bool to_the_end) {
  if (!connection.is_open()) return;
  bool more = false;
  const Status status = connection.read(to_the_end, more);
  if (!status.ok()) return break_connection(connection.peer(), status);
  if (more) mark_busy(connection);
  flush(connection);  // what the reading gave rise to
}

void Tcp::mark_busy(PeerConnection& connection) {
  bool& busy = at(connection.peer()).busy;
  if (!busy) busy_.push_back(connection.peer());
  busy = true;
}

// ---- progress and failure ----

bool Tcp::progress(Completions& completions) {
  epoll_event events[kEventsAtOnce];
  const int count = epoll_wait(epoll_fd_, events, kEventsAtOnce, 0);
  for (int i = 0; i < count; i++) {
    const uint64_t data = events[i].data.u64;
    if (source_of(data) != EventSource::connection) {
      manager_->on_event(data);
      continue;
    }
    PeerConnection& connection = *at(static_cast<int>(index_of(data))).connection;
    if (events[i].events & EPOLLOUT) connection.unblock();
    if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
      read(connection, (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
    else
      flush(connection);
  }
  bool moved = count > 0 || !busy_.empty();
  turn_.swap(busy_);
  for (const int peer : turn_) at(peer).busy = false;
  for (const int peer : turn_) read(*at(peer).connection, true);
  turn_.clear();
  moved |= returns_.hand_over(completions);
  return moved;
}

bool Tcp::prepare_wait() { return busy_.empty() && returns_.empty(); }

template <typename Which>
void Tcp::hand_back(Which which, const Status& status) {
  const auto back = [&](auto& request) { returns_.add(request, status); };
  messages_.hand_back(which, status);
  for (const int peer : in_use_) {
    at(peer).connection->take_sends_if(which, back);
    at(peer).connection->take_receive_if(which, back);
  }
}

void Tcp::fail_peer(int number, const Status& status) {
  RemotePeer& peer = at(number);
  peer.failed = status;
  manager_->hang_up(number);
  if (peer.connection) shut(*peer.connection);
  hand_back([number](const auto& item) { return item.peer == number; }, status);
}

void Tcp::cancel(uint32_t comm, const Status& status) {
  messages_.cancel(comm, status);
  hand_back([comm](const auto& item) { return item.key.comm == comm; }, status);
}

void Tcp::forget(const std::function<bool(uint32_t comm)>& over) {
  messages_.forget(over);
  for (const int peer : in_use_) at(peer).connection->forget(over);
}

// Asks those that something is awaited from. See transports/tcp/peer_connection.hpp.
void Tcp::stalled() {
  if (!sealed_) return;
  const std::set<int> awaited = messages_.awaited();
  for (const int number : in_use_) {
    PeerConnection& connection = *at(number).connection;
    if (!connection.is_open() || (!connection.receiving() && !awaited.contains(number))) continue;
    if (connection.post_ask()) flush(connection);
  }
}

std::optional<WireOverhead> Tcp::wire_overhead(bool in_memory) const {
  return WireOverhead{tcp_payload_permille(mtu_of(interface_), in_memory),
                      tcp_message_bytes(in_memory, sealed_), false};
}

std::string Tcp::statistics() const {
  uint64_t sent = 0, received = 0;
  size_t open = 0;
  for (const int number : in_use_) {
    const PeerConnection& connection = *peers_[static_cast<size_t>(number)].connection;
    open += connection.is_open();
    sent += connection.bytes_sent();
    received += connection.bytes_received();
  }
  return fmt::format(
      "connections {}, messages sent {}, bytes sent {}, bytes received {}, strangers refused {}",
      open, messages_.sent(), sent, received, manager_->refused());
}

}  // namespace sennit::tcp

namespace sennit {
SENNIT_TRANSPORT_ENTRY(tcp, 20, Reach::network, tcp::Tcp::make)
}
