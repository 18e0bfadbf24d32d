// message_handler.hpp: who is told of what comes and goes over a connection: what messages mean is
// not the connection's business (transports/tcp/messages.hpp).
#pragma once

#include <span>

#include "transports/tcp/wire.hpp"

namespace sennit::tcp {

class PeerConnection;

// Called from within PeerConnection::read() and write(), under the engine's lock. It may queue what
// is to be sent, but neither read, write nor shut the connection.
class MessageHandler {
 public:
  virtual ~MessageHandler() = default;
  // An eager message with its bytes, or a control header. An error ends the connection.
  virtual Status on_message(PeerConnection& connection, const WireHeader& header,
                            std::span<const std::byte> bytes) = 0;
  // A large message begins: where it goes, or nullptr to drop it. The connection holds the receive
  // until on_received() or on_given_up() gives it back.
  virtual RecvRequest* on_first_piece(PeerConnection& connection, const WireHeader& header) = 0;
  virtual void on_received(RecvRequest& request) = 0;  // all of it is there
  virtual void on_given_up(PeerConnection& connection, RecvRequest& request) = 0;  // by its sender
  virtual void on_sent(SendRequest& request) = 0;  // its memory is not needed any more
};

}  // namespace sennit::tcp
