// loopback_endpoint.hpp: the part of a loopback instance that other instances in the process touch.
// That is its inbox, its tickets, and the process-wide table of endpoints. See
// transports/loopback.cpp.
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

#include "base/mutex.hpp"
#include "base/process/forked.hpp"
#include "transports/transport.hpp"

namespace sennit::loopback {

// How far a ticket is. Whoever moves it out of `pending` decides: the receiver takes or drops it,
// or the sender cancels it.
enum class TicketState : uint32_t {
  pending,    // in the receiver's inbox or among its arrivals
  copying,    // the receiver is reading the sender's memory
  exposed,    // ... until release()
  finished,   // on its way back
  cancelled,  // by the sender; the receiver gives it back when it meets it
  dropped,    // by the receiver, who has forgotten it
};

// A send as its receiver sees it. It lies in the sender's endpoint, which uses it again once
// neither side needs it any more.
struct Ticket {
  std::atomic<TicketState> state{TicketState::pending};
  SendRequest* request = nullptr;  // nullptr: free or cancelled; the sender's
  Key key;
  uint64_t signature = 0;
  size_t bytes = 0;
  std::span<const Segment> segments;
  bool exported = false;  // in a device's memory
  Status status;          // results, set by the receiver before it gives the ticket back
  uint64_t taken_ns = 0;
};

class Endpoint;
// What a notice tells the endpoint that it is pushed into.
enum class NoticeKind : uint8_t {
  sent,      // a ticket for the receiver
  finished,  // the ticket comes back to its sender
  closed,    // the endpoint `from` is gone
  exported,  // `memory` of the sender's device may be mapped
  mapped,    // ... and it is, by the receiver's
  takes,     // messages of communicator `comm` may be there
};
// What lies in an endpoint's inbox.
struct Notice {
  NoticeKind kind;
  int from = -1;
  Ticket* ticket = nullptr;
  std::shared_ptr<Endpoint> source;  // keeps the ticket's memory
  std::shared_ptr<const ExportedMemory> memory = nullptr;
  uint32_t comm = 0;
};

// The part of an instance that other instances touch. Any thread may call it.
class Endpoint {
 public:
  Endpoint() : event_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Endpoint() {
    if (event_fd >= 0) ::close(event_fd);
  }

  // False if the endpoint is closed.
  bool push(Notice notice) SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (closed_) return false;
    inbox_.push_back(std::move(notice));
    filled_.store(true, std::memory_order_release);
    if (sleeping_) {
      const uint64_t one = 1;
      if (write(event_fd, &one, sizeof one) < 0) return true;  // full: it is readable anyway
    }
    return true;
  }
  // `other` gets a notice when this closes; false if it is closed already.
  bool tell_when_closed(const std::shared_ptr<Endpoint>& other) SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!closed_) linked_.push_back(other);
    return !closed_;
  }

  // The owner's: swaps what has come into `taken`, which is empty. False: nothing has.
  bool take_all(std::vector<Notice>& taken) SENNIT_EXCLUDES(mutex_) {
    if (!filled_.load(std::memory_order_acquire)) return false;
    const MutexLock lock(mutex_);
    taken.swap(inbox_);
    filled_.store(false, std::memory_order_relaxed);
    if (sleeping_) {
      sleeping_ = false;
      uint64_t count;
      if (read(event_fd, &count, sizeof count) < 0) count = 0;  // nobody had rung
    }
    return true;
  }
  // The owner's, before it sleeps on event_fd: false if something has come.
  bool prepare_wait() SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!inbox_.empty()) return false;
    sleeping_ = true;
    return true;
  }
  // The owner's last: who wants to hear of it.
  std::vector<std::weak_ptr<Endpoint>> close() SENNIT_EXCLUDES(mutex_) {
    std::vector<Notice> unread;  // which may hold other endpoints, so they go without the lock
    const MutexLock lock(mutex_);
    closed_ = true;
    unread.swap(inbox_);
    return std::move(linked_);
  }

  const int event_fd;
  // The owner's alone, but for what is in flight; they keep their place.
  std::deque<Ticket> tickets;

 private:
  std::atomic<bool> filled_{false};  // lets an idle take_all() skip the lock
  Mutex mutex_;
  bool closed_ SENNIT_GUARDED_BY(mutex_) = false;
  bool sleeping_ SENNIT_GUARDED_BY(mutex_) = false;
  std::vector<Notice> inbox_ SENNIT_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Endpoint>> linked_ SENNIT_GUARDED_BY(mutex_);
};

// What an instance tells its peers, as these bytes: the process id, a random number of the process
// and the endpoint's number in it.
struct EndpointAddress {
  int64_t process = 0;
  std::array<std::byte, 16> nonce{};
  uint64_t id = 0;
};

// The process-wide table of endpoints.
class Hub {
 public:
  static Hub& instance() {
    static Hub* const hub = new Hub;
    return *hub;
  }
  EndpointAddress enter(const std::shared_ptr<Endpoint>& endpoint) {
    const MutexLock lock(mutex_);
    const EndpointAddress address = {getpid(), nonce_, next_++};
    endpoints_[address.id] = endpoint;
    return address;
  }
  void leave(const EndpointAddress& address) {
    const MutexLock lock(mutex_);
    endpoints_.erase(address.id);
  }
  // The endpoint of this address, if it is in this process.
  std::shared_ptr<Endpoint> find(std::span<const std::byte> bytes) {
    EndpointAddress address;
    if (bytes.size() != sizeof address) return nullptr;
    std::memcpy(&address, bytes.data(), sizeof address);
    if (address.process != getpid() || address.nonce != nonce_) return nullptr;
    const MutexLock lock(mutex_);
    const auto found = endpoints_.find(address.id);
    return found == endpoints_.end() ? nullptr : found->second.lock();
  }

 private:
  Hub() {
    // Without it, process ids tell processes apart, and the table has to know the endpoint.
    if (getrandom(nonce_.data(), nonce_.size(), 0) < 0) nonce_.fill(std::byte{0});
    hold_across_fork(mutex_);
  }

  Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Endpoint>> endpoints_ SENNIT_GUARDED_BY(mutex_);
  uint64_t next_ SENNIT_GUARDED_BY(mutex_) = 1;
  std::array<std::byte, 16> nonce_{};
};

}  // namespace sennit::loopback
