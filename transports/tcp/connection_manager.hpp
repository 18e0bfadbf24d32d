// connection_manager.hpp: how tcp connections come to be: one listening socket, strangers at it,
// calls to peers, and the choice between two connections that were made at once.
//
// A connection is handed over only when both sides have proven that they hold the job's secret
// (transports/tcp/auth.hpp). Of two simultaneous ones the lower rank's stays: it declines the
// other's while its own call is under way, and the higher rank abandons its own call when the lower
// one's comes. No message is sent before that is settled, so none is lost. Strangers: at most 256
// unproven connections, 5 s each; when full, the oldest goes. A call that ends in mid-handshake
// (the peer was stopped, or flooded), or does not get there (no route for now), is repeated a few
// times. Out of descriptors: accepting pauses, with a log line; when that lasts, one that is kept
// for this finds out who is waiting, and the connection with that peer is given up. Threads: the
// engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transports/tcp/address.hpp"
#include "transports/tcp/auth.hpp"
#include "transports/transport.hpp"

namespace sennit::tcp {

// What an epoll event is about, packed into its data.
enum class EventSource : uint8_t { connection, call, guest, listener, timer };
inline uint64_t pack(EventSource source, uint32_t index, uint32_t generation = 0) {
  return static_cast<uint64_t>(source) << 56 | static_cast<uint64_t>(generation & 0xffffff) << 32 |
         index;
}
inline EventSource source_of(uint64_t data) { return static_cast<EventSource>(data >> 56); }
inline uint32_t index_of(uint64_t data) { return static_cast<uint32_t>(data); }

// Who the connections are for. Called from within ConnectionManager::on_event() and call().
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  virtual bool wants_connection(int peer) = 0;  // it has none, and none has failed
  // The socket is the handler's from now on, and in no epoll set.
  virtual void on_connection(int peer, int fd, const Handshake& handshake) = 0;
  // There is no connection, and none is being made any more.
  virtual void on_call_failed(int peer, const Status& status) = 0;
};

// Makes the tcp connections of one rank: by calls, and from those who call. Each is handed to the
// handler, which outlives this, once it is proven; until then its descriptor is the manager's.
class ConnectionManager {
 public:
  // Listens on the context's interface, any port. Its descriptors go into the epoll set with
  // pack()'s data, of which events other than EventSource::connection are for on_event().
  static Result<std::unique_ptr<ConnectionManager>> open(const TransportContext& context,
                                                         int epoll_fd, ConnectionHandler& handler);
  ~ConnectionManager();
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;

  const SocketAddress& address() const { return address_; }
  // Connects to the peer, unless that is under way.
  void call(int peer, const SocketAddress& address);
  void hang_up(int peer);  // the peer failed: no call, no retry
  // An epoll event of one of the manager's sources.
  void on_event(uint64_t data);
  uint64_t refused() const { return refused_; }  // strangers so far

 private:
  struct Guest {  // an accepted connection that has proven nothing yet
    int fd = -1;
    uint32_t generation = 0;
    uint64_t since_ns = 0;
    std::optional<Handshake> handshake;
    std::string from;
    bool on_spare = false;  // there is no descriptor for it: once it is known who it is, it goes
  };
  struct OutgoingCall {
    SocketAddress address;
    int fd = -1;  // -1: waits for its next attempt
    bool connected = false;
    bool abandoned = false;  // for the peer's own call
    int attempts = 0;
    uint64_t next_ns = 0;
    std::optional<Handshake> handshake;
  };

  ConnectionManager(const TransportContext& context, int epoll_fd, ConnectionHandler& handler);
  HandshakeConfig config() const { return {secret_, "tcp", job_, rank_, size_, sealed_}; }
  void accept_guests();
  bool hold_spare();
  void no_descriptor(int error);
  void pause_accepting(int error);
  void drive_guest(uint32_t index);
  void dismiss(Guest& guest, const std::string& why);
  void abandon(int peer);
  void start(int peer, OutgoingCall& call);
  void drive_call(int peer);
  void not_connected(int peer, OutgoingCall& call, int error);
  void repeat_or_fail(int peer, OutgoingCall& call, const Status& status);
  void on_timer();
  void set_timer();
  void refuse(const std::string& from, const std::string& why);

  const int rank_, size_;
  const uint64_t job_;
  const std::vector<std::byte> secret_;
  const bool sealed_;
  const int epoll_fd_;
  ConnectionHandler& handler_;
  SocketAddress address_;
  int listener_ = -1;
  int timer_ = -1;
  int spare_ = -1;
  // accepting has failed for want of descriptors since then; 0: it has not
  uint64_t starved_since_ns_ = 0;
  bool timer_set_ = false;
  bool paused_ = false;
  std::vector<Guest> guests_;
  size_t guests_used_ = 0;
  std::unordered_map<int, OutgoingCall> calls_;
  uint64_t refused_ = 0, refused_unlogged_ = 0;
  uint64_t logged_refused_ns_ = 0, logged_pause_ns_ = 0;
};

}  // namespace sennit::tcp
