// address.hpp: an IPv4 or IPv6 address with its port: from numeric text, as sockaddr, and as the
// bytes that the bootstrap carries.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sennit::tcp {

struct SocketAddress {
  static constexpr size_t kBytes = 20;  // of encode()
  std::array<uint8_t, 16> ip{};         // IPv4 in the first four
  uint16_t port = 0;
  bool v6 = false;

  // "192.0.2.7" or "fd00::1", port 0; nothing where it is neither. Of a link-local address it keeps
  // no scope, so it can be neither listened at nor connected to.
  static std::optional<SocketAddress> parse(const std::string& numeric);
  static SocketAddress of(const sockaddr_storage& in);  // of family AF_INET or AF_INET6
  socklen_t fill(sockaddr_storage& out) const;          // returns the length that is used
  std::vector<std::byte> encode() const;
  // What encode() made; nothing where it is anything else.
  static std::optional<SocketAddress> decode(std::span<const std::byte> bytes);
  std::string text() const;  // with the port, for people
};

}  // namespace sennit::tcp
