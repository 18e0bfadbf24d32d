// replanning.cpp: see api/state/replanning.hpp.
#include "api/state/replanning.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bytes.hpp"

namespace sennit {
namespace {

// Topics of Control::tell and announce. The numbers are part of the wire format.
constexpr uint8_t kVersionTopic = 16;  // down: a version of the fabric
constexpr uint8_t kPromiseTopic = 17;  // up: see on_promise()
constexpr uint8_t kSwitchTopic = 18;   // down: a communicator's first call of a version
constexpr uint8_t kLostTopic = 19;  // up: what was promised may be lost; the version that is known

int lowest_of(const CommunicatorState& communicator) {
  const std::vector<int>& members = communicator.members();
  return *std::min_element(members.begin(), members.end());
}

std::vector<std::byte> bytes_of(const FabricVersion& version) {
  ByteWriter out;
  out.u64(version.number);
  write(out, version.slow);
  return out.take();
}

// Null: it is none.
std::shared_ptr<FabricVersion> version_of(const std::vector<std::byte>& bytes) {
  ByteReader in(bytes);
  auto version = std::make_shared<FabricVersion>();
  version->number = in.u64();
  version->slow = read_slow_boundaries(in);
  return in.finish("a version of the fabric").ok() ? version : nullptr;
}

// Messages between the members of a group that is made are no calls, and have no plans.
bool has_plans(const CommunicatorState& communicator) {
  return without_channel(communicator.id()) == communicator.id();
}

}  // namespace

void Replanning::set_up(Control* control, Engine* engine) {
  control_ = control;
  engine_ = engine;
}

FabricVersionPointer Replanning::latest() const {
  const MutexLock lock(mutex_);
  return latest_;
}

std::vector<SlowBoundary> Replanning::proposed() const {
  const MutexLock lock(mutex_);
  return proposed_.number > latest_->number ? proposed_.slow : latest_->slow;
}

// A newer announcement of the same key takes the place of an older one that a rank has missed.
void Replanning::announce(const FabricVersion& version) {
  control_.load()->announce(kVersionTopic, 0, bytes_of(version));
}

// Numbers of a coordinator are above those of the ones before it, which have lower ranks.
void Replanning::propose(std::vector<SlowBoundary> slow) {
  Control* const control = control_;
  FabricVersion version;
  {
    const MutexLock lock(mutex_);
    const uint64_t first = static_cast<uint64_t>(control->rank()) << 32;
    proposed_.number = std::max({proposed_.number, latest_->number, first}) + 1;
    proposed_.slow = std::move(slow);
    version = proposed_;
  }
  announce(version);
}

bool Replanning::announced(uint8_t topic, const std::vector<std::byte>& blob) {
  if (topic == kVersionTopic) on_version(blob);
  if (topic == kSwitchTopic) on_switch(blob);
  return topic == kVersionTopic || topic == kSwitchTopic;
}

bool Replanning::told(int rank, uint8_t topic, const std::vector<std::byte>& blob) {
  if (topic == kPromiseTopic) on_promise(rank, blob);
  if (topic == kLostTopic) on_lost(blob);
  return topic == kPromiseTopic || topic == kLostTopic;
}

// Those below this rank on the tree have lost as much, so all are asked.
void Replanning::may_be_lost() {
  Control* const control = control_;
  const FabricVersionPointer version = latest();
  if (control && version->number > 0)
    control->tell(kLostTopic, bytes_of(*version), Control::MayWait::no);
}

// A coordinator that took over may not have heard what its predecessor announced last.
void Replanning::on_lost(const std::vector<std::byte>& blob) {
  const std::shared_ptr<FabricVersion> theirs = version_of(blob);
  const FabricVersionPointer own = latest();
  if (theirs) announce(theirs->number > own->number ? *theirs : *own);
}

void Replanning::on_version(const std::vector<std::byte>& blob) {
  std::shared_ptr<FabricVersion> version = version_of(blob);
  if (!version || version->number == 0) return;
  const uint64_t number = version->number;
  std::deque<Freed> freed;
  {
    const MutexLock lock(mutex_);
    if (number < latest_->number) return;
    if (number > latest_->number) {
      latest_ = std::move(version);
      promises_.clear();
    }
    freed = freed_;
  }
  registry_.for_each([&](CommunicatorState& communicator) { promise(communicator, number); });
  for (const Freed& one : freed) tell_promise(number, one, false);
}

void Replanning::added(CommunicatorState& communicator) {
  if (const uint64_t version = latest()->number; version > 0) promise(communicator, version);
}

// Where all have ended it together nobody waits.
void Replanning::removed(CommunicatorState& communicator) {
  if (communicator.over() || communicator.failed() || communicator.size() == 1) return;
  const Freed freed{{communicator.id(), lowest_of(communicator)},
                    communicator.size(),
                    communicator.calls().next()};
  uint64_t version = 0;
  {
    const MutexLock lock(mutex_);
    freed_.push_back(freed);
    if (freed_.size() > kMostFreed) freed_.pop_front();
    version = latest_->number;
  }
  if (version > 0) tell_promise(version, freed, false);
}

void Replanning::promise(CommunicatorState& communicator, uint64_t version) {
  if (!has_plans(communicator)) return;
  const std::optional<uint32_t> number = communicator.switches().promise(version);
  if (!number) return;
  tell_promise(version,
               {{communicator.id(), lowest_of(communicator)}, communicator.size(), *number}, true);
}

void Replanning::tell_promise(uint64_t version, const Freed& of, bool in_use) {
  ByteWriter out;
  out.u64(version).u32(of.which.first).rank(of.which.second).rank(of.size).u32(of.next);
  out.flag(in_use);
  control_.load()->tell(kPromiseTopic, out.take(), Control::MayWait::no);
}

void Replanning::on_promise(int rank, const std::vector<std::byte>& blob) {
  Control* const control = control_;
  if (!control) return;
  ByteReader in(blob);
  const uint64_t version = in.u64();
  const uint32_t comm = in.u32();
  const int lowest = in.rank_below(control->size()), size = in.rank();
  const uint32_t number = in.u32();
  const bool in_use = in.flag();
  if (!in.finish("a promise").ok()) return;
  ByteWriter out;
  {
    const MutexLock lock(mutex_);
    if (version != latest_->number) return;
    Promises& promises = promises_[{comm, lowest}];
    if (promises.ranks.empty() || static_cast<int32_t>(number - promises.number) > 0)
      promises.number = number;
    promises.ranks.insert(rank);
    promises.in_use |= in_use;
    if (static_cast<int>(promises.ranks.size()) != size) return;
    out.u64(version).u32(comm).rank(lowest).u32(promises.number);
    const bool wanted = promises.in_use;
    promises_.erase({comm, lowest});
    if (!wanted) return;
  }
  const uint64_t key = uint64_t{comm} << 32 | static_cast<uint32_t>(lowest);
  control->announce(kSwitchTopic, key, out.take());
}

void Replanning::on_switch(const std::vector<std::byte>& blob) {
  Control* const control = control_;
  ByteReader in(blob);
  const uint64_t number = in.u64();
  const uint32_t comm = in.u32();
  const int lowest = in.rank_below(control ? control->size() : 0);
  const uint32_t from = in.u32();
  const FabricVersionPointer version = latest();
  if (!in.finish("a switch of plans").ok() || number != version->number) return;
  registry_.for_each([&](CommunicatorState& communicator) {
    if (communicator.id() == comm && lowest_of(communicator) == lowest)
      communicator.switches().settle(version, from);
  });
  engine_.load()->wake_waiters();
}

}  // namespace sennit
