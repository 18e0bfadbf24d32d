// address.cpp: see transports/tcp/address.hpp.
#include "transports/tcp/address.hpp"

#include <arpa/inet.h>

#include <cstring>

#include <fmt/core.h>

namespace sennit::tcp {

std::optional<SocketAddress> SocketAddress::parse(const std::string& numeric) {
  SocketAddress out;
  if (inet_pton(AF_INET, numeric.c_str(), out.ip.data()) == 1) return out;
  out.v6 = true;
  if (inet_pton(AF_INET6, numeric.c_str(), out.ip.data()) == 1) return out;
  return std::nullopt;
}

SocketAddress SocketAddress::of(const sockaddr_storage& in) {
  SocketAddress out;
  out.v6 = in.ss_family == AF_INET6;
  if (out.v6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(in);
    std::memcpy(out.ip.data(), &in6.sin6_addr, out.ip.size());
    out.port = ntohs(in6.sin6_port);
  } else {
    const auto& in4 = reinterpret_cast<const sockaddr_in&>(in);
    std::memcpy(out.ip.data(), &in4.sin_addr, 4);
    out.port = ntohs(in4.sin_port);
  }
  return out;
}

socklen_t SocketAddress::fill(sockaddr_storage& out) const {
  std::memset(&out, 0, sizeof out);
  if (v6) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(out);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    std::memcpy(&in6.sin6_addr, ip.data(), ip.size());
    return sizeof in6;
  }
  auto& in = reinterpret_cast<sockaddr_in&>(out);
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  std::memcpy(&in.sin_addr, ip.data(), 4);
  return sizeof in;
}

std::vector<std::byte> SocketAddress::encode() const {
  std::vector<std::byte> out(kBytes);
  out[0] = std::byte{1};  // version
  out[1] = static_cast<std::byte>(v6);
  std::memcpy(&out[2], &port, 2);
  std::memcpy(&out[4], ip.data(), ip.size());
  return out;
}

std::optional<SocketAddress> SocketAddress::decode(std::span<const std::byte> bytes) {
  if (bytes.size() != kBytes || bytes[0] != std::byte{1}) return std::nullopt;
  SocketAddress out;
  out.v6 = bytes[1] != std::byte{0};
  std::memcpy(&out.port, &bytes[2], 2);
  std::memcpy(out.ip.data(), &bytes[4], out.ip.size());
  return out;
}

std::string SocketAddress::text() const {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(v6 ? AF_INET6 : AF_INET, ip.data(), text, sizeof text);
  return v6 ? fmt::format("[{}]:{}", text, port) : fmt::format("{}:{}", text, port);
}

}  // namespace sennit::tcp
