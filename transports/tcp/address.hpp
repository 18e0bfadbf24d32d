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
  static constexpr size_t kBytes = 20;
  std::array<uint8_t, 16> ip{};  // IPv4 in the first four
  uint16_t port = 0;
  bool v6 = false;

  static std::optional<SocketAddress> parse(const std::string& numeric);
  static SocketAddress of(const sockaddr_storage& in);
  socklen_t fill(sockaddr_storage& out) const;
  std::vector<std::byte> encode() const;
  static std::optional<SocketAddress> decode(std::span<const std::byte> bytes);
  std::string text() const;
};

}  // namespace sennit::tcp
