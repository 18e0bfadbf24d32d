// inbox.hpp: what comes in over one connection: room for the bytes that the socket has, and the
// headers and messages that they are.
//
// Headers and eager messages are taken out of a 64 KiB buffer, so that many of them cost one system
// call; the pieces of a large message are received into its own segments. What a message means is
// the MessageHandler's business.
//
// Sealed, the stream is a row of units: a header, then, where it announces any, the bytes of an
// eager message or of a piece (transports/tcp/seal.hpp). The length of each is known from a header
// that has opened, so nobody on the path can make a reader wait for bytes that do not come. A piece
// is received where it belongs and opened there, or in a buffer where it belongs to several
// segments; nothing is reported before it has opened. Cost: two passes over what comes in, and a
// copy where a piece spans segments. Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "transports/segments.hpp"
#include "transports/tcp/eager_windows.hpp"
#include "transports/tcp/message_handler.hpp"
#include "transports/tcp/seal.hpp"
#include "transports/tcp/wire.hpp"

namespace sennit::tcp {

class Inbox {
 public:
  // Everything given outlives this. The handler is told of messages of `connection`, which is with
  // rank `peer`; `windows` get the credit that headers bring.
  Inbox(int peer, EagerWindows& windows, MessageHandler& handler, PeerConnection& connection)
      : peer_(peer), windows_(windows), handler_(handler), connection_(connection) {}

  // Before the first byte; `keys` of this end: everything is sealed.
  void open(const SealKeys* keys);
  void close() { buffer_.reset(); }

  // A large message was asked for: bytes that are none of its own are read sparingly from now on,
  // since those behind them are to go where they belong.
  void expect() { expected_++; }
  bool receiving() const { return incoming_ != nullptr; }

  // Where the next bytes go, in at most `count` pieces. `filled`: the last room was too small for
  // what the socket had.
  int make_room(iovec* pieces, int count, bool filled);
  // So many bytes have come there. An error means that the connection is over.
  Status received(size_t bytes);

  // Takes out the receive that a message is coming for, if `which` selects it; what is left of the
  // message is dropped as it comes, so the connection stays in step.
  template <typename Which, typename Taken>
  void take_receive_if(Which which, Taken taken) {
    if (!incoming_ || !which(*incoming_)) return;
    if (sealed_) receive_elsewhere();
    taken(*std::exchange(incoming_, nullptr));
  }

 private:
  struct SealedInput {
    explicit SealedInput(const SealKeys& keys) : seal(keys.cipher, keys.in) {}
    Seal seal;
    bool header_open = false;  // the one that the receive buffer begins with
    bool piece_due = false;    // a piece has come but for its tag
    bool aside = false;        // the piece comes into `buffer`
    Segment place;             // where the piece comes
    SegmentCursor rest;        // of the message, from this piece on
    std::vector<std::byte> buffer;
  };

  // What `bytes` of an eager message take in the stream.
  size_t unit_bytes(size_t bytes) const {
    return bytes + (sealed_ && bytes > 0 ? Seal::kTagBytes : 0);
  }
  Status parse();
  size_t take_piece(size_t available);
  bool header_here(WireHeader& header, Status& status);
  Status take_header(const WireHeader& header);
  Status begin_piece(const WireHeader& header);
  Status begin_message(const WireHeader& header);
  void piece_received();
  void message_received();
  Status broken(const char* what) const;
  // Sealed.
  Status forged() const;
  bool header_opened(Status& status);
  Status place_piece(size_t bytes);
  Status open_piece();
  void receive_elsewhere();

  const int peer_;
  EagerWindows& windows_;
  MessageHandler& handler_;
  PeerConnection& connection_;
  std::unique_ptr<SealedInput> sealed_;  // none: the connection is plain
  size_t expected_ = 0;                  // large messages that were asked for
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;       // of what is in the buffer
  size_t direct_ = 0;                // bytes of the last room that are not the buffer's
  RecvRequest* incoming_ = nullptr;  // the large message under way
  SegmentCursor incoming_cursor_;
  size_t incoming_left_ = 0;        // of the message, beyond this piece
  size_t incoming_piece_left_ = 0;  // without incoming_: to be dropped
};

}  // namespace sennit::tcp
