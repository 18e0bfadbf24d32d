// relay.hpp: the ports of unique ids while nobody knows where rank 0 of their jobs is. Who makes an
// id listens from then on, and need not be rank 0, nor in the job at all: rank 0 tells the maker
// where it listens (RootAt), and who enlists at the maker is sent on to it.
//
// Where rank 0 is a thread of the maker's own process, the usual case, it takes the listening
// socket over and is served directly; for this the relay leaves who knocks in the kernel's queue
// for a moment first. A port is closed once all ranks were sent on, or when nobody came to it for
// the time that its id was given. Both ends prove the id's secret, as everywhere in the control
// plane, and what strangers do is bounded as there.
//
// Cost: one descriptor for each id that is not in use yet, and for all of them together one thread
// with two descriptors, which ends with the last one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "base/net/socket.hpp"
#include "base/process/forked.hpp"
#include "base/process/interruption.hpp"
#include "base/status.hpp"
#include "control/poller.hpp"

namespace sennit::control {

// What is known of a unique id where it is made, or used.
struct IdSecrets {
  uint64_t job = 0;
  std::vector<std::byte> secret;  // 32 bytes
  bool sealed = false;            // SENNIT_WIRE
};

// Of a whole process; any thread. A forked child begins with none of its parent's ports.
class Relay {
 public:
  static Relay& of_process();

  // Serves `listener`, which it takes over. `patience_ms`: it is closed when nobody came for so
  // long.
  void keep(IdSecrets id, int listener, int64_t patience_ms) SENNIT_EXCLUDES(mutex_);
  // For a rank 0 in this process, which owns the socket from now on; who has knocked already comes
  // again. -1: the job's id was not made here, or is in use, or its port was closed.
  int take(uint64_t job) SENNIT_EXCLUDES(mutex_);
  // Nobody will use the id. Nothing happens where it was not made here, or is in use.
  void forget(uint64_t job) SENNIT_EXCLUDES(mutex_);
  // Whether its job has begun, here or elsewhere; the latest 1,024 are remembered.
  bool was_used(uint64_t job) SENNIT_EXCLUDES(mutex_);

 private:
  struct Port {
    IdSecrets id;
    int listener = -1;
    uint64_t number = 0;   // what the poller calls it
    bool polled = false;   // from a moment after the making on
    int64_t since_ms = 0;  // made
    int64_t news_ms = 0;   // somebody was here
    int64_t patience_ms = 0;
    Origin origin{};
  };
  class Thread;

  Relay() { hold_across_fork(mutex_); }
  void wake() SENNIT_EXCLUDES(mutex_);
  int remove(uint64_t job) SENNIT_REQUIRES(mutex_);
  void remember(uint64_t job) SENNIT_REQUIRES(mutex_);
  bool has_thread() const SENNIT_REQUIRES(mutex_) { return poller_ && !origin_.forked(); }

  Mutex mutex_;
  std::map<uint64_t, Port> ports_ SENNIT_GUARDED_BY(mutex_);  // by job
  std::vector<uint64_t> used_ SENNIT_GUARDED_BY(mutex_);      // jobs, a ring
  size_t next_used_ SENNIT_GUARDED_BY(mutex_) = 0;
  uint64_t next_number_ SENNIT_GUARDED_BY(mutex_) = 1;
  std::shared_ptr<Poller> poller_ SENNIT_GUARDED_BY(mutex_);  // of the thread; null: there is none
  Origin origin_ SENNIT_GUARDED_BY(mutex_);                   // of that
};

// Rank 0's part, where another process made the id, at one of `maker`'s addresses: tells it where
// rank 0 listens. Blocks until the maker has heard it. Errors: the maker has ended, does not answer
// within `limit_ms`, or knows of another rank 0; or the caller wants it no more.
Status tell_maker(const std::vector<Address>& maker, const IdSecrets& id, int ranks,
                  const std::vector<Address>& own, int64_t limit_ms,
                  const Interruption& interruption);

}  // namespace sennit::control
