// self.hpp: what all objects of one rank's control plane go by: who this rank is, how far it has
// come, and what time it is. Control thread only, once that runs.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "control/control_plane.hpp"

namespace sennit::control {

// How far a rank has come, in this order; it may go from any of them to closing, and from joining
// and waiting back to enlisting, to complain to rank 0.
enum class Phase : uint8_t {
  enlisting,  // asks rank 0 for its parent (rank 0: collects everybody)
  joining,    // connects to its parent, waits for its children
  waiting,    // joined; waits for the table
  running,
  leaving,  // said goodbye, serves those below until they are gone
  closing,  // writes what is left and ends
};

// One for each rank. Owned by the control plane; the loop sets now_ms at the start of each round.
struct Self {
  Self(const BootstrapOptions& given, Control::Callbacks given_callbacks)
      : options(with_limits(given)),
        callbacks(std::move(given_callbacks)),
        rank(options.rank),
        size(options.size),
        heartbeat_ms(std::clamp<int64_t>(options.heartbeat_timeout_ms / kHeartbeatsPerTimeout, 1,
                                         kMostHeartbeatMs)),
        pid(getpid()),
        job(options.job) {}

  const BootstrapOptions options;
  const Control::Callbacks callbacks;
  const int rank, size;
  const int64_t heartbeat_ms;  // between two signs of life
  const int pid;               // of the process that has the thread: a forked child has not
  uint64_t job;                // 0: not known yet

  Phase phase = Phase::enlisting;
  int64_t now_ms = 0;       // when this round of the loop began
  int64_t next_due_ms = 0;  // when the next one begins at the latest

  bool starting() const { return phase < Phase::running; }
  bool serving() const { return phase == Phase::running || phase == Phase::leaving; }
  // Asks for a round of the loop at `when`. A timer is a time that tick() compares with now_ms.
  void due(int64_t when) { next_due_ms = std::min(next_due_ms, when); }

 private:
  static constexpr int64_t kHeartbeatsPerTimeout = 4;
  static constexpr int64_t kMostHeartbeatMs = 1000;
  static constexpr int64_t kNeverMs = int64_t{1} << 40;

  // A time-out of 0: silence is never taken for death.
  static BootstrapOptions with_limits(BootstrapOptions options) {
    if (options.heartbeat_timeout_ms == 0) options.heartbeat_timeout_ms = kNeverMs;
    return options;
  }
};

}  // namespace sennit::control
