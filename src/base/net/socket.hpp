// socket.hpp: addresses and sockets: resolving, listening, connecting without blocking. IPv4 and
// IPv6 alike.
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

// One end of a connection. `ip` is in network order, IPv4 as ::ffff:a.b.c.d; `port` is in the
// host's. By default it is the wildcard of both families, with any port.
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
// SENNIT_INTERFACE: an interface's name or one of this host's addresses, but no link-local one.
Result<Address> interface_address(const std::string& interface);
// This host's addresses that others may reach, the likeliest first; loopback only if there is
// nothing else.
std::vector<Address> host_addresses();

// To listen at all addresses of this host, IPv4 and IPv6, on any port.
inline Address any_address() { return {}; }
// Port 0: any. The error says what is in the way and the remedy.
Result<int> listen_on(const Address& address);
// A socket whose connection is under way; or an errno.
Result<int> connect_to(const Address& address, int* error);
// The error of a connection that was under way; also when it reached nobody but itself.
int connect_error(int fd);
// A connection that waits, or -1 with errno set.
int accept_from(int listener, Address* from);
// Whether its error stays for a while though somebody waits, as for want of descriptors or memory:
// who asked has to pause. An error of the one connection is gone with it.
bool accept_fails_again(int error);
// Small messages go out at once (TCP_NODELAY). Sockets of connect_to() and accept_from() have it.
void set_no_delay(int fd);
// The two ends of a connection; the wildcard with port 0 where there is none.
Address local_address(int fd);
Address remote_address(int fd);

// For sockets of listen_on(), connect_to() and accept_from(), as for all of open_guarded(). Any
// other descriptor stays open; -1 is nothing.
inline void close_socket(int fd) { close_guarded(fd); }

// Milliseconds of a clock that never goes back and counts from some point in the past.
int64_t now_ms();

}  // namespace sennit
