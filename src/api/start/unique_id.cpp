// unique_id.cpp: the 128 bytes that one rank makes and hands to all others: where rank 0 listens,
// the job's number and its secret, with a checksum against mangling on the way. Whoever holds them
// may join the job.
//
// The listening socket is opened at once, so the port in the id is truly ours. Rank 0 takes it over
// where it is in this process; else the relay (control/relay.hpp) sends the ranks on to it. All of
// the host's addresses go into the id; joining ranks try them in turn. An id of an address has no
// such socket: rank 0 itself listens there.
#include "api/start/unique_id.hpp"

#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <exception>

#include <fmt/core.h>

#include "api/start/secret.hpp"
#include "base/net/socket.hpp"
#include "base/options.hpp"
#include "base/process/sodium_ready.hpp"
#include "control/relay.hpp"

namespace sennit {
namespace {

using control::Relay;

// What the bytes are. As many as NCCL's ids have, so that they fit into those.
struct Contents {
  char magic[4];
  uint16_t port;
  uint8_t unused[2];
  uint64_t job;  // 0: the id is of an address, where rank 0 listens itself
  uint8_t secret[32];
  // The addresses that rank 0 listens at, the likeliest first: each one byte, how long it is, and
  // so many bytes, 4 of IPv4 or 16 of IPv6. A length of 0 ends them.
  uint8_t addresses[64];
  uint8_t checksum[16];  // over all before it
};
constexpr char kMagic[4] = {'s', 'n', 'i', '2'};
static_assert(sizeof(Contents) == SENNIT_UNIQUE_ID_BYTES);
constexpr size_t kIpv4Bytes = 4;
constexpr uint8_t kIpv4Prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};  // ::ffff:a.b.c.d

// As many as there is room for.
void write_addresses(const std::vector<Address>& addresses, Contents* contents) {
  size_t used = 0;
  for (const Address& address : addresses) {
    const bool short_form = std::memcmp(address.ip.data(), kIpv4Prefix, sizeof kIpv4Prefix) == 0;
    const size_t bytes = short_form ? kIpv4Bytes : address.ip.size();
    if (used + 1 + bytes > sizeof contents->addresses) continue;
    contents->addresses[used++] = static_cast<uint8_t>(bytes);
    std::memcpy(contents->addresses + used, address.ip.data() + (address.ip.size() - bytes), bytes);
    used += bytes;
  }
}

// Nothing where the lengths make no sense.
std::vector<Address> read_addresses(const Contents& contents) {
  std::vector<Address> addresses;
  for (size_t used = 0; used < sizeof contents.addresses && contents.addresses[used] != 0;) {
    const size_t bytes = contents.addresses[used++];
    Address address;
    if ((bytes != kIpv4Bytes && bytes != address.ip.size()) ||
        used + bytes > sizeof contents.addresses)
      return {};
    if (bytes == kIpv4Bytes) std::memcpy(address.ip.data(), kIpv4Prefix, sizeof kIpv4Prefix);
    std::memcpy(address.ip.data() + (address.ip.size() - bytes), contents.addresses + used, bytes);
    used += bytes;
    addresses.push_back(address);
  }
  return addresses;
}

void checksum(const Contents& contents, uint8_t (&out)[16]) {
  crypto_generichash(out, sizeof out, reinterpret_cast<const uint8_t*>(&contents),
                     offsetof(Contents, checksum), nullptr, 0);
}

// So much longer than for a rank that does not come a process waits for the first one of an id that
// it made. The port of an id that nobody used is closed then.
constexpr int64_t kPatience = 10;

}  // namespace

BootstrapOptions bootstrap_defaults() {
  BootstrapOptions options;
  options.insecure = option_flag("SENNIT_INSECURE");
  options.sealed = option_text("SENNIT_WIRE") == "sealed";
  options.arrival_timeout_ms = option_integer("SENNIT_ARRIVAL_TIMEOUT");
  options.heartbeat_timeout_ms = option_integer("SENNIT_HEARTBEAT_TIMEOUT");
  options.stall_ms = option_integer("SENNIT_STALL");
  options.interface = option_text("SENNIT_INTERFACE");
  return options;
}

namespace {

// Where others find a socket that listens on all of this host's addresses, or on the one that
// SENNIT_INTERFACE names.
struct Place {
  std::vector<Address> addresses = host_addresses();  // the likeliest first
  Address bound = any_address();
};

Result<Place> own_place() {
  Place place;
  if (const std::string interface = option_text("SENNIT_INTERFACE"); !interface.empty()) {
    const Result<Address> named = interface_address(interface);
    if (!named) return named.status();
    place.bound = *named;
    place.addresses = {place.bound};
  }
  return place;
}

// The id's bytes, once all else is filled in.
std::vector<std::byte> written(Contents* contents, const std::vector<Address>& addresses) {
  std::memcpy(contents->magic, kMagic, sizeof kMagic);
  write_addresses(addresses, contents);
  checksum(*contents, contents->checksum);
  std::vector<std::byte> id(SENNIT_UNIQUE_ID_BYTES);
  std::memcpy(id.data(), contents, sizeof *contents);
  return id;
}

// "host:80" or "[::1]:80"; false: it is neither.
bool split_address(const std::string& address, std::string* host, uint16_t* port) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos || colon == 0) return false;
  *host = address.substr(0, colon);
  if (host->size() > 2 && host->front() == '[' && host->back() == ']')
    *host = host->substr(1, host->size() - 2);
  else if (host->find(':') != host->npos)
    return false;
  const char* const end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, *port);
  return error == std::errc() && stop == end && *port > 0;
}

}  // namespace

Result<std::vector<std::byte>> make_unique_id() {
  if (!sodium_ready()) return Status{SENNIT_INTERNAL, "libsodium does not start"};
  const Result<Place> place = own_place();
  if (!place) return place.status();
  const Result<int> listener = listen_on(place->bound);
  if (!listener) return listener.status();

  Contents contents{};
  while (contents.job == 0) randombytes_buf(&contents.job, sizeof contents.job);
  randombytes_buf(contents.secret, sizeof contents.secret);
  contents.port = local_address(*listener).port;
  const auto* secret = reinterpret_cast<const std::byte*>(contents.secret);
  Relay::of_process().keep({contents.job,
                            {secret, secret + sizeof contents.secret},
                            option_text("SENNIT_WIRE") == "sealed"},
                           *listener, kPatience * option_integer("SENNIT_ARRIVAL_TIMEOUT"));
  return written(&contents, place->addresses);
}

Result<std::vector<std::byte>> make_unique_id_at(const std::string& address) {
  std::string host;
  uint16_t port = 0;
  if (!split_address(address, &host, &port))
    return invalid(fmt::format("the address \"{}\": expected HOST:PORT, or [IPV6]:PORT", address));
  const Result<std::vector<Address>> addresses = resolve(host, port);
  if (!addresses) return addresses.status();
  const Result<std::vector<std::byte>> secret = job_secret(host, port, false);
  if (!secret) return secret.status();
  Contents contents{};
  if (secret->size() != sizeof contents.secret)
    return Status{SENNIT_REFUSED,
                  fmt::format("an id of the address {} would let anybody join the job: set "
                              "SENNIT_SECRET to the same text on all ranks",
                              address)};
  contents.port = port;
  std::memcpy(contents.secret, secret->data(), sizeof contents.secret);
  return written(&contents, *addresses);
}

namespace {

// All but the listener, which is rank 0's.
Result<BootstrapOptions> read_id(std::span<const std::byte> id, int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size)
    return invalid(
        fmt::format("rank {} of {} ranks: expected a rank from 0 to size - 1", rank, size));
  if (id.size() < sizeof(Contents))
    return invalid(
        fmt::format("a unique id of {} bytes: expected {}", id.size(), SENNIT_UNIQUE_ID_BYTES));
  Contents contents;
  std::memcpy(&contents, id.data(), sizeof contents);
  uint8_t sum[16];
  checksum(contents, sum);
  const std::vector<Address> addresses = read_addresses(contents);
  if (std::memcmp(contents.magic, kMagic, sizeof kMagic) != 0 ||
      std::memcmp(sum, contents.checksum, sizeof sum) != 0 || addresses.empty())
    return invalid(fmt::format(
        "the unique id is damaged: hand on all {} bytes that sennit_get_unique_id gave, of the "
        "same version of sennit",
        SENNIT_UNIQUE_ID_BYTES));
  BootstrapOptions options = bootstrap_defaults();
  options.rank = rank;
  options.size = size;
  options.job = contents.job;
  options.root_port = contents.port;
  for (const Address& address : addresses)
    options.root_host += (options.root_host.empty() ? "" : ",") + address.host();
  const auto* secret = reinterpret_cast<const std::byte*>(contents.secret);
  options.secret.assign(secret, secret + sizeof contents.secret);
  return options;
}

}  // namespace

namespace {

// This process is rank 0, and another one made the id: it listens here, and tells the maker.
Result<int> listen_elsewhere(const BootstrapOptions& options) {
  Result<std::vector<Address>> maker = resolve(options.root_host, options.root_port);
  if (!maker) return maker.status();
  Result<Place> place = own_place();
  if (!place) return place.status();
  const Result<int> listener = listen_on(place->bound);
  if (!listener) return listener.status();
  for (Address& address : place->addresses) address.port = local_address(*listener).port;
  const Status told =
      control::tell_maker(*maker, {options.job, options.secret, options.sealed}, options.size,
                          place->addresses, options.arrival_timeout_ms, options.interruption);
  if (told.ok()) return *listener;
  close_socket(*listener);
  return told;
}

}  // namespace

Result<BootstrapOptions> options_from_unique_id(std::span<const std::byte> id, int rank, int size,
                                                Interruption interruption) {
  Result<BootstrapOptions> options = read_id(id, rank, size);
  if (!options) return options;
  options->interruption = std::move(interruption);
  if (rank != 0 || options->job == 0) return options;
  options->root_listener_fd = Relay::of_process().take(options->job);
  if (options->root_listener_fd >= 0) return options;
  if (Relay::of_process().was_used(options->job))
    return invalid("each id starts one job only, and this one's has begun already");
  const Result<int> listener = listen_elsewhere(*options);
  if (!listener) return listener.status();
  options->root_listener_fd = *listener;
  return options;
}

Status forget_unique_id(std::span<const std::byte> id) {
  const Result<BootstrapOptions> options = read_id(id, 0, 1);
  if (options) Relay::of_process().forget(options->job);
  return options.status();
}

// Every start listens anew on the id's port. The socket that make_unique_id opened only keeps the
// port from others.
Result<BootstrapOptions> options_from_launch_id(std::span<const std::byte> id, int rank, int size) {
  Result<BootstrapOptions> options = read_id(id, rank, size);
  if (!options) return options;
  if (const int kept = Relay::of_process().take(options->job); kept >= 0)
    ::shutdown(kept, SHUT_RDWR);
  options->job = 0;
  return options;
}

}  // namespace sennit
