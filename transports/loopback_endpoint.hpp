// loopback_endpoint.hpp: the part of a loopback instance that other instances in the process touch:
// its inbox, its tickets, and the process-wide table of endpoints. See transports/loopback.cpp.
#pragma once

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/forked.hpp"
#include "transports/transport.hpp"

namespace sennit::loopback {

enum class TicketState : uint32_t {
  pending,    // in the receiver's inbox or among its arrivals
  copying,    // the receiver is reading the sender's memory
  exposed,    // ... until release()
  finished,   // on its way back
  cancelled,  // by the sender; the receiver gives it back when it meets it
  dropped,    // by the receiver, who has forgotten it
};

struct Ticket {
  std::atomic<TicketState> state{TicketState::pending};
  SendRequest* request = nullptr;  // nullptr: free or cancelled; the sender's
  Key key;
  uint64_t signature = 0;
  size_t bytes = 0;
  std::span<const Segment> segments;
  Status status;  // results, set by the receiver before it gives the ticket back
  uint64_t taken_ns = 0;
};

struct Endpoint;
struct Message {
  enum class Kind : uint8_t { sent, finished, closed } kind;
  int from = -1;
  Ticket* ticket = nullptr;
  std::shared_ptr<Endpoint> source;  // keeps the ticket's memory
};

// The part of an instance that other instances touch.
struct Endpoint {
  Endpoint() : event_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Endpoint() {
    if (event_fd >= 0) close(event_fd);
  }

  // False if the endpoint is closed.
  bool push(Message message) {
    const std::lock_guard lock(mutex);
    if (closed) return false;
    inbox.push_back(std::move(message));
    filled.store(true, std::memory_order_release);
    if (sleeping) {
      const uint64_t one = 1;
      if (write(event_fd, &one, sizeof one) < 0) return true;  // full: it is readable anyway
    }
    return true;
  }

  const int event_fd;
  std::atomic<bool> filled{false};  // lets an idle progress() skip the lock
  std::mutex mutex;
  bool closed = false;
  bool sleeping = false;
  std::vector<Message> inbox;
  std::vector<std::weak_ptr<Endpoint>> linked;  // who wants to hear of the closing
  std::deque<Ticket> tickets;                   // the sender's; stable addresses
};

// The process-wide table.
struct Hub {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Endpoint>> endpoints;
  uint64_t next = 1;
  std::array<std::byte, 16> nonce{};
  Hub() {
    // Without it, process ids tell processes apart, and the table has to know the endpoint.
    if (getrandom(nonce.data(), nonce.size(), 0) < 0) nonce.fill(std::byte{0});
    hold_across_fork(mutex);
  }
  static Hub& instance() {
    static Hub* const hub = new Hub;
    return *hub;
  }
};

struct Address {  // what an instance tells its peers
  int64_t process = 0;
  std::array<std::byte, 16> nonce{};
  uint64_t id = 0;
};

// The endpoint of this address, if it is in this process.
inline std::shared_ptr<Endpoint> find_endpoint(std::span<const std::byte> bytes) {
  Address address;
  if (bytes.size() != sizeof address) return nullptr;
  std::memcpy(&address, bytes.data(), sizeof address);
  Hub& hub = Hub::instance();
  if (address.process != getpid() || address.nonce != hub.nonce) return nullptr;
  const std::lock_guard lock(hub.mutex);
  const auto found = hub.endpoints.find(address.id);
  return found == hub.endpoints.end() ? nullptr : found->second.lock();
}

}  // namespace sennit::loopback
