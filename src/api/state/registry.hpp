// registry.hpp: the communicators of a context, and the failures that reach them.
//
// Failures come from the control plane's thread and from the engine, to communicators that stand
// and to those to come: a split may be over on other ranks, and its communicator have failed there,
// before this rank has made its own. So what matters to communicators that are about to be made is
// kept, no longer than that.
//
// Any thread. The lock is held while communicators are told, which then take their own locks and
// the engine's; nothing here may be called with one of those held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "api/state/communicator_state.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "control/control_plane.hpp"
#include "engine/engine.hpp"

namespace sennit {

inline constexpr uint32_t kWholeJob = 1;  // the number of the first communicator

// The number of a communicator's GroupChannel, and the communicator of a number of either.
inline constexpr uint32_t kChannelBit = 0x80000000;
constexpr uint32_t channel_of(uint32_t comm) { return comm | kChannelBit; }
constexpr uint32_t without_channel(uint32_t number) { return number & ~kChannelBit; }

// See above. Of one context; any thread.
class Registry {
 public:
  explicit Registry(int rank) : rank_(rank) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  // From now on it is told of peers that failed, and of communicators that are over.
  void set_engine(Engine* engine) SENNIT_EXCLUDES(mutex_);

  // A communicator between its making and its end. add() tells it what has failed already.
  void add(CommunicatorState* communicator) SENNIT_EXCLUDES(mutex_);
  void remove(const CommunicatorState* communicator) SENNIT_EXCLUDES(mutex_);
  // Whether no rank, link or communicator here has failed so far.
  bool well() const SENNIT_EXCLUDES(mutex_);

  // While one of these lives, this rank is about to make a communicator. Others may have made it
  // already: what they send on it is kept, and a failure that they tell of is remembered for it.
  // The first communicator's is under way from the start on.
  class Making {
   public:
    explicit Making(Registry& registry);
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    Registry& registry_;
    const uint64_t number_;
  };

  // What the control plane tells: see Control::Callbacks.
  void peers_failed(const std::vector<int>& failed, const Status& status) SENNIT_EXCLUDES(mutex_);
  void link_failed(int a, int b, const Status& status) SENNIT_EXCLUDES(mutex_);
  void communicator_failed(uint32_t comm, int member, const Status& status) SENNIT_EXCLUDES(mutex_);
  // What it asks.
  bool describe(uint32_t comm, uint32_t seq, CallDescriptor* out) const SENNIT_EXCLUDES(mutex_);
  std::vector<int> members(uint32_t comm) const SENNIT_EXCLUDES(mutex_);
  // Under the lock; `visit` may take the communicators' locks.
  void for_each(const std::function<void(CommunicatorState&)>& visit) const SENNIT_EXCLUDES(mutex_);
  // A call on this rank failed for a reason of its own.
  void failed_here(uint32_t comm, const Status& status) SENNIT_EXCLUDES(mutex_);

 private:
  CommunicatorState* find(uint32_t comm) const SENNIT_REQUIRES(mutex_);
  uint64_t begin_making() SENNIT_EXCLUDES(mutex_);
  void end_making(uint64_t making) SENNIT_REQUIRES(mutex_);

  struct BrokenLink {
    int a, b;
    Status status;
  };
  // A communicator that failed on other ranks, with one of its members, while `last_making` was the
  // newest of makings_.
  struct EarlyFailure {
    uint32_t comm;
    int member;
    Status status;
    uint64_t last_making;
  };
  static constexpr uint64_t kFirstMaking = 0;  // the first communicator's

  const int rank_;
  mutable Mutex mutex_;
  Engine* engine_ SENNIT_GUARDED_BY(mutex_) = nullptr;
  std::map<uint32_t, CommunicatorState*> communicators_ SENNIT_GUARDED_BY(mutex_);
  // Failures that matter to communicators to come as well: all the dead, and all broken links.
  std::vector<int> dead_ SENNIT_GUARDED_BY(mutex_);
  Status death_ SENNIT_GUARDED_BY(mutex_);
  std::vector<BrokenLink> broken_links_ SENNIT_GUARDED_BY(mutex_);
  bool one_failed_ SENNIT_GUARDED_BY(mutex_) = false;  // of the communicators that are gone
  std::vector<EarlyFailure> early_failures_ SENNIT_GUARDED_BY(mutex_);
  uint64_t next_making_ SENNIT_GUARDED_BY(mutex_) = kFirstMaking + 1;
  std::set<uint64_t> makings_ SENNIT_GUARDED_BY(mutex_) = {kFirstMaking};  // under way
};

}  // namespace sennit
