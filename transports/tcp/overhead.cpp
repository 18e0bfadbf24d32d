// overhead.cpp: see transports/tcp/overhead.hpp.
#include "transports/tcp/overhead.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "transports/tcp/seal.hpp"
#include "transports/tcp/wire.hpp"

namespace sennit {
namespace {

constexpr int kInPacket = 20 + 20 + 12;          // IP, TCP, timestamps
constexpr int kFrame = 14;                       // addresses and type
constexpr int kOnTheWire = 8 + kFrame + 4 + 12;  // preamble, frame, checksum, gap
constexpr int kOfMessage = sizeof(tcp::WireHeader);
constexpr int kOfSeals = 2 * Seal::kTagBytes;  // the header's and the message's
constexpr int kUsualMtu = 1500, kLeastMtu = 576;

int mtu_of_interface(const char* name) {
  ifreq request = {};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return kUsualMtu;
  const bool known = ::ioctl(fd, SIOCGIFMTU, &request) == 0;
  ::close(fd);
  return known ? request.ifr_mtu : kUsualMtu;
}

}  // namespace

uint64_t tcp_payload_permille(int mtu, bool in_memory) {
  const auto bytes = static_cast<uint64_t>(std::max(mtu, kLeastMtu));
  return (bytes - kInPacket) * 1000 / (bytes + (in_memory ? kFrame : kOnTheWire));
}

uint64_t tcp_message_bytes(bool in_memory, bool sealed) {
  const int bytes =
      kOfMessage + (sealed ? kOfSeals : 0) + kInPacket + (in_memory ? kFrame : kOnTheWire);
  return static_cast<uint64_t>(bytes);
}

int mtu_of(const std::string& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return kUsualMtu;
  int mtu = kUsualMtu;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char host[NI_MAXHOST] = "";
    if (getnameinfo(entry->ifa_addr, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    if (address == host) {
      mtu = mtu_of_interface(entry->ifa_name);
      break;
    }
  }
  freeifaddrs(list);
  return mtu;
}

}  // namespace sennit
