// peer_connection.hpp: one authenticated connection to a peer: bytes moved between its socket and
// what is to go out (transports/tcp/outbox.hpp) and what comes in (transports/tcp/inbox.hpp).
//
// What a message means is the handler's business. Threads: the engine's lock. A connection outlives
// its socket: queued requests wait in it, before it is open and after it broke.
//
// Sealed, bytes that somebody left out show when others come, which then do not open. In a silence
// none come, so who waits for a peer while his call has stalled asks it, with one header that says
// how many bytes have come, and the peer answers with as many as are missing. Both run in the
// stream itself: where nothing was left out, they open, and say nothing.
#pragma once

#include <optional>

#include "transports/tcp/eager_windows.hpp"
#include "transports/tcp/inbox.hpp"
#include "transports/tcp/outbox.hpp"

namespace sennit::tcp {

class PeerConnection {
 public:
  // `window_bytes`: of eager messages, per communicator, the same on both sides. The handler
  // outlives this.
  PeerConnection(int peer, size_t window_bytes, MessageHandler& handler)
      : peer_(peer),
        handler_(handler),
        windows_(window_bytes),
        outbox_(windows_),
        inbox_(peer, windows_, handler, *this) {}
  ~PeerConnection() { shut(); }
  PeerConnection(const PeerConnection&) = delete;
  PeerConnection& operator=(const PeerConnection&) = delete;

  int peer() const { return peer_; }
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Takes the socket over, once; with keys the connection is sealed.
  void open(int fd, const std::optional<SealKeys>& keys = {});
  void shut();  // queues keep what they hold

  // Queues; write() moves it.
  void post_control(const WireHeader& header) {
    outbox_.post_control(header);
    if (header.kind == HeaderKind::ready) inbox_.expect();
  }
  void post_eager(SendRequest& request) { outbox_.post_eager(request); }  // paid by take_window()
  void post_granted(SendRequest& request) { outbox_.post_granted(request); }
  // For a stalled call that waits for the peer: asks whether bytes are missing. False: there is no
  // need, and nothing was posted.
  bool post_ask();
  // To the peer's question; it has `received` bytes.
  void post_answer(uint64_t received);

  // Moves bytes until the socket blocks or the call has moved enough for now; then `more` is set.
  // An error means that the connection is over.
  Status write(bool& more);
  // `to_the_end`: the socket was reported closing, so a short read does not mean that it is empty.
  Status read(bool to_the_end, bool& more);
  void unblock() { blocked_ = false; }  // the socket has room again
  bool receiving() const { return inbox_.receiving(); }
  bool has_staged() const { return outbox_.has_staged(); }

  // The window of eager messages, per communicator.
  // As a sender: false if there is not enough of it.
  bool take_window(uint32_t comm, size_t bytes) { return windows_.spend(comm, bytes); }
  // As a receiver: false if the peer exceeds it.
  bool hold(uint32_t comm, size_t bytes) { return windows_.hold(comm, bytes); }
  // As a receiver: the message was consumed.
  void return_window(uint32_t comm, size_t bytes);
  void forget(const std::function<bool(uint32_t comm)>& over) { windows_.forget(over); }

  // Takes out the sends (the receive) that `which` selects; what is half moved is completed from a
  // private copy, or dropped on arrival, so the connection stays in step.
  template <typename Which, typename Taken>
  void take_sends_if(Which which, Taken taken) {
    outbox_.take_sends_if(which, taken);
  }
  template <typename Which, typename Taken>
  void take_receive_if(Which which, Taken taken) {
    inbox_.take_receive_if(which, taken);
  }

  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  const int peer_;
  MessageHandler& handler_;
  EagerWindows windows_;
  Outbox outbox_;
  Inbox inbox_;
  int fd_ = -1;
  bool blocked_ = false;  // the socket has no room
  bool sealed_ = false;
  uint64_t bytes_sent_ = 0, bytes_received_ = 0;
  uint64_t silent_at_ = 0;  // bytes_received_ at the last stall ...
  uint32_t stalls_ = 0;     // ... and how many there have been since the last byte came
};

}  // namespace sennit::tcp
