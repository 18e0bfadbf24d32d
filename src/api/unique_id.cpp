// unique_id.cpp: the 128 bytes that one rank makes and hands to all others: where rank 0 listens,
// the job's number and its secret, with a checksum against mangling on the way. Whoever holds them
// may join the job.
//
// The listening socket is opened at once, so the port in the id is truly ours, and waits in this
// process until rank 0 takes it over. All of the host's addresses go into the id; joining ranks try
// them in turn.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/core.h>

#include "api/launch.hpp"
#include "base/mutex.hpp"
#include "base/net/socket.hpp"
#include "base/options.hpp"
#include "base/process/forked.hpp"
#include "base/process/sodium_ready.hpp"

namespace sennit {
namespace {

// What the bytes are. As many as NCCL's ids have, so that they fit into those.
struct Contents {
  char magic[4];
  uint16_t port;
  uint8_t unused[2];
  uint64_t job;
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

struct Listener {
  int fd = -1;
  Origin origin;  // a forked child has not got it
};

// Listening sockets whose rank 0 has not come yet.
struct WaitingListeners {
  WaitingListeners() { hold_across_fork(mutex); }
  Mutex mutex;
  std::map<uint64_t, Listener> by_job SENNIT_GUARDED_BY(mutex);
};
WaitingListeners& waiting_listeners() {
  static auto* const all = new WaitingListeners;
  return *all;
}

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

Result<std::vector<std::byte>> make_unique_id() {
  if (!sodium_ready()) return Status{SENNIT_INTERNAL, "libsodium does not start"};
  std::vector<Address> addresses = host_addresses();
  Address bound = any_address();
  if (const std::string interface = option_text("SENNIT_INTERFACE"); !interface.empty()) {
    const Result<Address> named = interface_address(interface);
    if (!named) return named.status();
    bound = *named;
    addresses = {bound};
  }
  const Result<int> listener = listen_on(bound);
  if (!listener) return listener.status();

  Contents contents{};
  std::memcpy(contents.magic, kMagic, sizeof kMagic);
  while (contents.job == 0) randombytes_buf(&contents.job, sizeof contents.job);
  randombytes_buf(contents.secret, sizeof contents.secret);
  contents.port = local_address(*listener).port;
  write_addresses(addresses, &contents);
  checksum(contents, contents.checksum);
  {
    WaitingListeners& waiting = waiting_listeners();
    const MutexLock lock(waiting.mutex);
    waiting.by_job[contents.job].fd = *listener;
  }
  std::vector<std::byte> id(SENNIT_UNIQUE_ID_BYTES);
  std::memcpy(id.data(), &contents, sizeof contents);
  return id;
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

Result<BootstrapOptions> options_from_unique_id(std::span<const std::byte> id, int rank, int size) {
  Result<BootstrapOptions> options = read_id(id, rank, size);
  if (!options || rank != 0) return options;
  WaitingListeners& waiting = waiting_listeners();
  const MutexLock lock(waiting.mutex);
  const auto listener = waiting.by_job.find(options->job);
  if (listener == waiting.by_job.end() || listener->second.origin.forked())
    return invalid(
        "rank 0 has to be the process that called sennit_get_unique_id, and each id starts one job "
        "only");
  options->root_listener_fd = listener->second.fd;
  waiting.by_job.erase(listener);
  return options;
}

// Every start listens anew on the id's port. The socket that make_unique_id opened only keeps the
// port from others.
Result<BootstrapOptions> options_from_launch_id(std::span<const std::byte> id, int rank, int size) {
  Result<BootstrapOptions> options = read_id(id, rank, size);
  if (!options) return options;
  WaitingListeners& waiting = waiting_listeners();
  const MutexLock lock(waiting.mutex);
  if (const auto kept = waiting.by_job.find(options->job);
      kept != waiting.by_job.end() && !kept->second.origin.forked())
    ::shutdown(kept->second.fd, SHUT_RDWR);
  options->job = 0;
  return options;
}

}  // namespace sennit
