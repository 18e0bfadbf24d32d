// socket.hpp: addresses and sockets: resolving, listening, connecting without blocking. IPv4 and
// IPv6 alike; IPv4 is kept as ::ffff:a.b.c.d.
//
// Sockets opened here are closed in forked children (base/process/forked.hpp): a data loader's
// worker that inherited them would keep a dead rank's connections open, and nobody would see the
// end of file that says it died.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/process/forked.hpp"
#include "base/status.hpp"

namespace sennit {

struct Address {
  std::array<uint8_t, 16> ip{};
  uint16_t port = 0;

  bool loopback() const;
  bool wildcard() const;
  std::string host() const;  // "10.0.0.1", "fd00::1"
  std::string text() const;  // "10.0.0.1:4242", "[fd00::1]:4242"
  bool operator==(const Address&) const = default;
};

// Numeric only.
Result<Address> parse_address(const std::string& host, uint16_t port);
// A name, a numeric address, or several of them separated by commas. May block for DNS.
Result<std::vector<Address>> resolve(const std::string& hosts, uint16_t port);
// SENNIT_INTERFACE: an interface's name or one of this host's addresses.
Result<Address> interface_address(const std::string& interface);
// This host's addresses that others may reach, the likeliest first; loopback only if there is
// nothing else.
std::vector<Address> host_addresses();

inline Address any_address() { return {}; }
// Port 0: any. The error says what is in the way and the remedy.
Result<int> listen_on(const Address& address);
// A socket whose connection is under way; or an errno.
Result<int> connect_to(const Address& address, int* error);
// The error of a connection that was under way; also when it reached nobody but itself.
int connect_error(int fd);
// A connection that waits, or -1 with errno set.
int accept_from(int listener, Address* from);
void set_no_delay(int fd);
Address local_address(int fd);
Address remote_address(int fd);

inline void close_socket(int fd) { close_guarded(fd); }

int64_t now_ms();  // monotonic

}  // namespace sennit
