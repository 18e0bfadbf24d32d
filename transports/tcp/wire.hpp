// wire.hpp: what goes over a tcp data connection once it is authenticated: headers of one fixed
// size, some of them followed by bytes.
//
//   eager     a whole small message                  paid for with its (communicator, peer) window
//   announce  "I have a message of this name"        for one too large, or a window too small
//   ready     "send it": the receive is posted       carries what the receiver expects
//   first, more   pieces of a message that is ready  in order; one message at a time per direction
//   refuse    "mine is another": instead of first    after it both sides have SENNIT_MISMATCH
//   credit    nothing but the credit
//   ask       "so many bytes have come"              sealed and silent: peer_connection.hpp
// Every header returns credit for its communicator. Between two pieces of a large message, control
// headers and eager messages go ahead. A message whose sender gave up simply has no next piece.
#pragma once

#include <bit>
#include <cstdint>

#include "transports/transport.hpp"

namespace sennit::tcp {

static_assert(std::endian::native == std::endian::little, "headers are in little-endian order");

enum class HeaderKind : uint8_t { eager = 1, announce, ready, first, more, refuse, credit, ask };

// A header as it lies on the wire. Who receives another magic or version ends the connection.
struct WireHeader {
  uint16_t magic = kMagic;
  uint8_t version = kVersion;
  HeaderKind kind = HeaderKind::credit;
  Key key;
  uint32_t credit = 0;       // returned to the receiver of this header, for key.comm
  uint32_t piece_bytes = 0;  // that follow (eager, first, more)
  // eager, first: microseconds from the send's posting until this header was made
  uint32_t waited_us = 0;
  // eager, first: the sender's CLOCK_MONOTONIC then, in microseconds modulo 2^32
  uint32_t clock_us = 0;
  uint32_t reserved = 0;  // zero, for numbers of frames where connections are resumed
  uint64_t bytes = 0;     // of the whole message; ask: that have come
  uint64_t signature = 0;

  static constexpr uint16_t kMagic = 0x6e73;  // "sn"
  static constexpr uint8_t kVersion = 3;
};
static_assert(sizeof(WireHeader) == 56);

// of large messages; small ones wait for at most one
inline constexpr size_t kPieceBytes = 128 * 1024;
// an eager message fits into the receive buffer
inline constexpr size_t kMaxEagerBytes = 32 * 1024;
// eager bytes per (communicator, peer), unless 4 messages need more
inline constexpr size_t kWindowBytes = 64 * 1024;

// What an eager message takes of the window; empty ones cost memory too.
constexpr size_t eager_cost(size_t bytes) { return bytes + 128; }

}  // namespace sennit::tcp
