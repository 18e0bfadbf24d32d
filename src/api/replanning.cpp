// replanning.cpp: see api/replanning.hpp.
#include "api/replanning.hpp"

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
constexpr uint8_t kLostTopic = 19;     // up: what was promised may be lost
constexpr uint8_t kAgainTopic = 20;    // down: promise again

int lowest_of(const CommunicatorState& communicator) {
  const std::vector<int>& members = communicator.members();
  return *std::min_element(members.begin(), members.end());
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

void Replanning::propose(std::vector<SlowBoundary> slow) {
  ByteWriter out;
  out.u32(latest()->number + 1);
  write(out, slow);
  control_->announce(kVersionTopic, out.take());
}

bool Replanning::announced(uint8_t topic, const std::vector<std::byte>& blob) {
  if (topic == kVersionTopic) on_version(blob);
  if (topic == kSwitchTopic) on_switch(blob);
  if (topic == kAgainTopic) {
    const uint32_t version = latest()->number;
    registry_.for_each([&](CommunicatorState& communicator) { promise(communicator, version); });
  }
  return topic == kVersionTopic || topic == kSwitchTopic || topic == kAgainTopic;
}

bool Replanning::told(int rank, uint8_t topic, const std::vector<std::byte>& blob) {
  if (topic == kPromiseTopic) on_promise(rank, blob);
  if (topic == kLostTopic) control_->announce(kAgainTopic, {});
  return topic == kPromiseTopic || topic == kLostTopic;
}

// Those below this rank on the tree have lost as much, so all are asked.
void Replanning::may_be_lost() {
  if (control_ && latest()->number > 0) control_->tell(kLostTopic, {});
}

void Replanning::on_version(const std::vector<std::byte>& blob) {
  ByteReader in(blob);
  auto version = std::make_shared<FabricVersion>();
  version->number = in.u32();
  version->slow = read_slow_boundaries(in);
  if (!in.finish("a version of the fabric").ok()) return;
  const uint32_t number = version->number;
  {
    const MutexLock lock(mutex_);
    if (number <= latest_->number) return;
    latest_ = std::move(version);
    promises_.clear();
  }
  registry_.for_each([&](CommunicatorState& communicator) { promise(communicator, number); });
}

void Replanning::added(CommunicatorState& communicator) {
  if (const uint32_t version = latest()->number; version > 0) promise(communicator, version);
}

void Replanning::promise(CommunicatorState& communicator, uint32_t version) {
  const std::optional<uint32_t> number = communicator.switches().promise(version);
  if (!number) return;
  ByteWriter out;
  out.u32(version).u32(communicator.id()).rank(lowest_of(communicator));
  out.rank(communicator.size()).u32(*number);
  control_->tell(kPromiseTopic, out.take());
}

void Replanning::on_promise(int rank, const std::vector<std::byte>& blob) {
  ByteReader in(blob);
  const uint32_t version = in.u32(), comm = in.u32();
  const int lowest = in.rank_below(control_->size()), size = in.rank();
  const uint32_t number = in.u32();
  if (!in.finish("a promise").ok()) return;
  ByteWriter out;
  {
    const MutexLock lock(mutex_);
    if (version != latest_->number) return;
    Promises& promises = promises_[{comm, lowest}];
    if (promises.ranks.empty() || static_cast<int32_t>(number - promises.number) > 0)
      promises.number = number;
    promises.ranks.insert(rank);
    if (static_cast<int>(promises.ranks.size()) != size) return;
    out.u32(version).u32(comm).rank(lowest).u32(promises.number);
    promises_.erase({comm, lowest});
  }
  control_->announce(kSwitchTopic, out.take());
}

void Replanning::on_switch(const std::vector<std::byte>& blob) {
  ByteReader in(blob);
  const uint32_t number = in.u32(), comm = in.u32();
  const int lowest = in.rank_below(control_->size());
  const uint32_t from = in.u32();
  const FabricVersionPointer version = latest();
  if (!in.finish("a switch of plans").ok() || number != version->number) return;
  registry_.for_each([&](CommunicatorState& communicator) {
    if (communicator.id() == comm && lowest_of(communicator) == lowest)
      communicator.switches().settle(version, from);
  });
  engine_->wake_waiters();
}

}  // namespace sennit
