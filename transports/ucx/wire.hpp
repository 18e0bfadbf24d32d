// wire.hpp: what goes over UCX: active messages of one id, each with this header.
#pragma once

#include <cstdint>

#include "transports/transport.hpp"

namespace sennit::ucx {

// What a message is for. All but the first are control messages, without bytes of their own.
enum class MessageKind : uint32_t {
  message = 1,
  hello,     // so that both sides see the other die
  credit,    // window that comes back
  withdraw,  // what was offered on a communicator will not be sent
};

// Before the bytes of every message, as it lies in memory: all ranks have one byte order. What a
// kind has no use for is zero.
struct Header {
  MessageKind kind;
  int32_t from;
  Key key;  // of a credit or a withdrawal: comm only
  uint64_t signature;
  uint64_t bytes;  // of a credit: how much window comes back
};

inline constexpr unsigned kActiveMessageId = 1;

}  // namespace sennit::ucx
