// socket.cpp: see base/net/socket.hpp.
#include "base/net/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/core.h>

#include "base/process/descriptors.hpp"

namespace sennit {
namespace {

constexpr int kBacklog = 4096;  // all ranks of a large job may come at once

// Before an IPv4 address.
constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
// The first byte of every IPv4 address of the host itself.
constexpr uint8_t kLoopbackNetwork = 127;
bool is_v4(const Address& address) {
  return std::equal(kMapped.begin(), kMapped.end(), address.ip.begin());
}

// fe80::/10: it may be another host on every link, and does not say on which.
bool is_link_local(const Address& address) {
  constexpr uint8_t kFirst = 0xfe, kSecond = 0x80, kSecondMask = 0xc0;
  return address.ip[0] == kFirst && (address.ip[1] & kSecondMask) == kSecond;
}
// As text, maybe with the name of an interface behind it, which says nothing to other hosts.
bool is_link_local(const std::string& text) {
  const Result<Address> numeric = parse_address(text.substr(0, text.find('%')), 0);
  return numeric && is_link_local(*numeric);
}

Address from_sockaddr(const sockaddr* generic) {
  Address result;
  if (generic->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, generic, sizeof v4);
    std::copy(kMapped.begin(), kMapped.end(), result.ip.begin());
    std::memcpy(result.ip.data() + kMapped.size(), &v4.sin_addr, sizeof v4.sin_addr);
    result.port = ntohs(v4.sin_port);
  } else if (generic->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, generic, sizeof v6);
    std::memcpy(result.ip.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
    result.port = ntohs(v6.sin6_port);
  }
  return result;
}

socklen_t to_sockaddr(const Address& address, sockaddr_storage* storage) {
  std::memset(storage, 0, sizeof *storage);
  if (is_v4(address)) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    std::memcpy(&v4->sin_addr, address.ip.data() + kMapped.size(), sizeof v4->sin_addr);
    return sizeof *v4;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(storage);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(address.port);
  std::memcpy(&v6->sin6_addr, address.ip.data(), sizeof v6->sin6_addr);
  return sizeof *v6;
}

Address v4_any() {
  Address result;
  std::copy(kMapped.begin(), kMapped.end(), result.ip.begin());
  return result;
}

Status socket_error(const std::string& what, int error) {
  if (error == EMFILE || error == ENFILE)
    return {SENNIT_OUT_OF_RESOURCES, what + ": no file descriptors left; " + kDescriptorRemedy};
  return {SENNIT_OUT_OF_RESOURCES, what + ": " + std::strerror(error)};
}

}  // namespace

bool Address::loopback() const {
  if (is_v4(*this)) return ip[kMapped.size()] == kLoopbackNetwork;
  static constexpr std::array<uint8_t, 16> kOne = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return ip == kOne;
}
bool Address::wildcard() const { return ip == std::array<uint8_t, 16>{} || ip == v4_any().ip; }

std::string Address::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_v4(*this))
    inet_ntop(AF_INET, ip.data() + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, ip.data(), text, sizeof text);
  return text;
}
std::string Address::text() const {
  return is_v4(*this) ? fmt::format("{}:{}", host(), port) : fmt::format("[{}]:{}", host(), port);
}

Result<Address> parse_address(const std::string& host, uint16_t port) {
  Address result;
  result.port = port;
  std::array<uint8_t, 4> v4;
  if (inet_pton(AF_INET, host.c_str(), v4.data()) == 1) {
    std::copy(kMapped.begin(), kMapped.end(), result.ip.begin());
    std::copy(v4.begin(), v4.end(), result.ip.begin() + 12);
    return result;
  }
  if (inet_pton(AF_INET6, host.c_str(), result.ip.data()) == 1) return result;
  return invalid(fmt::format("'{}' is not an IP address", host));
}

// SENNIT_INVALID_ARGUMENT: these are link-local addresses, and no name that may get others yet.
Result<std::vector<Address>> resolve(const std::string& hosts, uint16_t port) {
  std::vector<Address> result;
  std::string trouble, link_local;
  // Whether it is of use.
  const auto take = [&](Address address) {
    if (is_link_local(address)) return false;
    address.port = port;
    if (std::find(result.begin(), result.end(), address) == result.end()) result.push_back(address);
    return true;
  };
  for (size_t begin = 0; begin <= hosts.size();) {
    const size_t end = std::min(hosts.find(',', begin), hosts.size());
    const std::string host = hosts.substr(begin, end - begin);
    begin = end + 1;
    if (is_link_local(host)) {
      link_local = host;
      continue;
    }
    if (const auto numeric = parse_address(host, port)) {
      take(*numeric);
      continue;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
    if (code != 0) {
      trouble = fmt::format("cannot resolve the name '{}': {}", host, gai_strerror(code));
      continue;
    }
    bool any = false;
    for (const addrinfo* entry = list; entry; entry = entry->ai_next)
      any |= take(from_sockaddr(entry->ai_addr));
    if (!any)
      trouble = fmt::format(
          "the name '{}' has link-local addresses alone, which are of no use to other hosts", host);
    freeaddrinfo(list);
  }
  if (!result.empty()) return result;
  if (!trouble.empty()) return Status{SENNIT_NOT_FOUND, trouble};
  return invalid(fmt::format(
      "'{}' is a link-local address, which is of no use to other hosts; name another one",
      link_local));
}

Result<Address> interface_address(const std::string& interface) {
  if (is_link_local(interface))
    return invalid(
        fmt::format("SENNIT_INTERFACE={}: a link-local address is of no use to other hosts; name "
                    "another one, or the interface",
                    interface));
  if (const auto numeric = parse_address(interface, 0)) return *numeric;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return socket_error("cannot list network interfaces", errno);
  std::string known;
  std::vector<Address> found;
  bool link_local = false;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (interface == entry->ifa_name) {
      const Address address = from_sockaddr(entry->ifa_addr);
      if (is_link_local(address))
        link_local = true;
      else
        found.insert(family == AF_INET ? found.begin() : found.end(), address);
    } else if (known.find(entry->ifa_name) == known.npos) {
      known += std::string(known.empty() ? "" : ", ") + entry->ifa_name;
    }
  }
  freeifaddrs(list);
  if (!found.empty()) return found.front();
  if (link_local)
    return invalid(fmt::format(
        "SENNIT_INTERFACE={}: it has link-local addresses alone, which are of no use to "
        "other hosts; give it an IPv4 address, or one of IPv6 that is not fe80::",
        interface));
  return invalid(
      fmt::format("SENNIT_INTERFACE={}: no such interface or address here; there are: {}",
                  interface, known.empty() ? "none" : known));
}

std::vector<Address> host_addresses() {
  std::vector<Address> result;
  // The address that the default route leaves from. Connecting a datagram socket sends nothing.
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage storage;
  const socklen_t length = to_sockaddr(*parse_address("192.0.2.1", 9), &storage);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0)
    result.push_back(local_address(fd));
  if (fd >= 0) ::close(fd);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    for (const int family : {AF_INET, AF_INET6})
      for (const ifaddrs* entry = list; entry; entry = entry->ifa_next)
        if (entry->ifa_addr && entry->ifa_addr->sa_family == family &&
            (entry->ifa_flags & IFF_UP)) {
          const Address address = from_sockaddr(entry->ifa_addr);
          if (!address.loopback() && !is_link_local(address)) result.push_back(address);
        }
    freeifaddrs(list);
  }
  std::vector<Address> unique;
  for (Address address : result) {
    address.port = 0;
    if (!address.loopback() && !address.wildcard() &&
        std::find(unique.begin(), unique.end(), address) == unique.end())
      unique.push_back(address);
  }
  if (unique.empty()) unique.push_back(*parse_address("127.0.0.1", 0));
  return unique;
}

Result<int> listen_on(const Address& address) {
  const bool any = address.wildcard();
  // The wildcard: both families at once, or IPv4 where there is no IPv6.
  for (const bool v6 : {true, false}) {
    Address bound = address;
    if (any && !v6) {
      bound = v4_any();
      bound.port = address.port;
    }
    sockaddr_storage storage;
    const socklen_t length = to_sockaddr(bound, &storage);
    const int fd = open_guarded_stream(storage.ss_family);
    if (fd < 0) {
      if (any && v6 && errno == EAFNOSUPPORT) continue;
      return socket_error("cannot open a listening socket", errno);
    }
    const int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (storage.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0 ||
        ::listen(fd, kBacklog) != 0) {
      const int error = errno;
      close_socket(fd);
      if (any && v6 && error == EADDRNOTAVAIL) continue;
      if (error == EADDRINUSE)
        return Status{
            SENNIT_OUT_OF_RESOURCES,
            fmt::format(
                "port {} is in use on this host, by another job or by a rank 0 that was started "
                "twice; end that, or choose another port with SENNIT_PORT on all ranks",
                address.port)};
      if (error == EACCES)
        return Status{
            SENNIT_OUT_OF_RESOURCES,
            fmt::format(
                "port {} needs privileges; choose one above 1023 with SENNIT_PORT on all ranks",
                address.port)};
      return socket_error(fmt::format("cannot listen on {}", bound.text()), error);
    }
    return fd;
  }
  return Status{SENNIT_OUT_OF_RESOURCES, "neither IPv4 nor IPv6 is available"};
}

Result<int> connect_to(const Address& address, int* error) {
  sockaddr_storage storage;
  const socklen_t length = to_sockaddr(address, &storage);
  *error = 0;
  const int fd = open_guarded_stream(storage.ss_family);
  if (fd < 0) {
    *error = errno;
    return socket_error("cannot open a socket", errno);
  }
  set_no_delay(fd);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0 &&
      errno != EINPROGRESS) {
    *error = errno;
    close_socket(fd);
    return socket_error("cannot connect to " + address.text(), *error);
  }
  return fd;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  // On a port of the ephemeral range, with nobody listening, TCP may connect a socket to itself.
  if (error == 0 && local_address(fd) == remote_address(fd)) return ECONNREFUSED;
  return error;
}

int accept_from(int listener, Address* from) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  const int fd = open_guarded([&] {
    return ::accept4(listener, reinterpret_cast<sockaddr*>(&storage), &length,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
  });
  if (fd < 0) return fd;
  *from = from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
  set_no_delay(fd);
  return fd;
}

bool accept_fails_again(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    // What is no listener never becomes one.
    case EBADF:
    case EINVAL:
    case ENOTSOCK:
    case EOPNOTSUPP:
      return true;
    default:  // Linux tells a connection's own errors here too, of its network as well
      return false;
  }
}

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Address local_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length);
  return from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
}

Address remote_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length);
  return from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace sennit
