// replanning.hpp: how all ranks come to plan by what traffic has shown of the fabric, while they go
// on making calls.
//
// The coordinator proposes a version: it is announced to all ranks, and each promises for each of
// its communicators to begin no call without being told (api/call/plan_switches.hpp). When all
// members of one have promised, the coordinator announces the first call of the new version, which
// is the highest that comes next on any of them. A communicator that is made later promises as soon
// as it stands, and one that a rank has freed while others may be in it counts as promised.
//
// What was promised may be lost where a rank on its way to the coordinator ends, or the coordinator
// itself: who notices says so with the version that it knows, and the latest is announced again, on
// which all promise again.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "api/state/registry.hpp"
#include "base/mutex.hpp"
#include "control/control_plane.hpp"

namespace sennit {

// Of one context. Any thread.
class Replanning {
 public:
  explicit Replanning(Registry& registry) : registry_(registry) {}
  Replanning(const Replanning&) = delete;
  Replanning& operator=(const Replanning&) = delete;

  // Both outlive this. Nothing happens before.
  void set_up(Control* control, Engine* engine);
  // At the coordinator, else nothing happens: all ranks plan by this before long. It replaces what
  // was known; nothing: the fabric is as ranks agreed at the start.
  void propose(std::vector<SlowBoundary> slow) SENNIT_EXCLUDES(mutex_);
  // The latest that was proposed here or heard of.
  std::vector<SlowBoundary> proposed() const SENNIT_EXCLUDES(mutex_);
  // The latest version that this rank has heard of.
  FabricVersionPointer latest() const SENNIT_EXCLUDES(mutex_);
  // A communicator was made, and is in the registry; it is about to leave that.
  void added(CommunicatorState& communicator) SENNIT_EXCLUDES(mutex_);
  void removed(CommunicatorState& communicator) SENNIT_EXCLUDES(mutex_);

  // What the control plane says: see Control::Callbacks. False: the topic is not of this.
  bool told(int rank, uint8_t topic, const std::vector<std::byte>& blob) SENNIT_EXCLUDES(mutex_);
  bool announced(uint8_t topic, const std::vector<std::byte>& blob) SENNIT_EXCLUDES(mutex_);
  void may_be_lost() SENNIT_EXCLUDES(mutex_);

 private:
  // Of which communicator: its number, and its lowest member, since disjoint groups may share one.
  using Which = std::pair<uint32_t, int>;
  struct Promises {
    std::set<int> ranks;
    uint32_t number = 0;  // the highest
    bool in_use = false;  // on one of them
  };
  // A communicator that this rank has freed.
  struct Freed {
    Which which;
    int size = 0;
    uint32_t next = 0;  // number of the call that would have been next
  };
  static constexpr size_t kMostFreed = 256;

  void promise(CommunicatorState& communicator, uint64_t version);
  void tell_promise(uint64_t version, const Freed& of, bool in_use);
  void announce(const FabricVersion& version);
  void on_promise(int rank, const std::vector<std::byte>& blob);
  void on_version(const std::vector<std::byte>& blob);
  void on_lost(const std::vector<std::byte>& blob);
  void on_switch(const std::vector<std::byte>& blob);

  Registry& registry_;
  std::atomic<Control*> control_ = nullptr;
  std::atomic<Engine*> engine_ = nullptr;
  mutable Mutex mutex_;
  FabricVersionPointer latest_ SENNIT_GUARDED_BY(mutex_) = std::make_shared<const FabricVersion>();
  FabricVersion proposed_ SENNIT_GUARDED_BY(mutex_);   // the latest of this rank's own
  std::deque<Freed> freed_ SENNIT_GUARDED_BY(mutex_);  // the latest ones
  // At the coordinator: of the latest version.
  std::map<Which, Promises> promises_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit
