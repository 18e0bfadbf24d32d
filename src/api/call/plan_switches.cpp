// plan_switches.cpp: see api/call/plan_switches.hpp.
#include "api/call/plan_switches.hpp"

#include <algorithm>
#include <utility>

namespace sennit {
namespace {

// Call numbers may wrap.
bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

// What was switched to long ago holds however many calls were made since: a call that asks is not
// far before it.
bool shortly_before(uint32_t a, uint32_t b) {
  constexpr uint32_t kFar = 1 << 24;
  return before(a, b) && b - a < kFar;
}

}  // namespace

// What begins() has to hold: all from the first call on that may be another version's.
void PlanSwitches::hold() {
  std::optional<uint32_t> first;
  const auto take = [&](uint32_t number) {
    if (!first || before(number, *first)) first = number;
  };
  for (const auto& [version, number] : promises_) take(number);
  for (const Switch& to : ahead_) take(to.from);
  calls_.hold_from(first, current());
}

std::optional<uint32_t> PlanSwitches::promise(uint64_t version) {
  const MutexLock lock(mutex_);
  for (const auto* switches : {&ahead_, &passed_}) {
    const auto found = std::find_if(switches->begin(), switches->end(), [&](const Switch& one) {
      return one.version->number >= version;
    });
    if (found == switches->end()) continue;
    if (found->version->number == version) return found->from;
    return std::nullopt;
  }
  const auto known = promises_.find(version);
  if (known != promises_.end()) return known->second;
  // An earlier promise holds calls before this one would.
  const uint32_t number = calls_.hold_next();
  promises_[version] = number;
  return number;
}

void PlanSwitches::settle(FabricVersionPointer version, uint32_t from) {
  const MutexLock lock(mutex_);
  if (!promises_.contains(version->number)) return;
  promises_.erase(promises_.begin(), promises_.upper_bound(version->number));
  ahead_.push_back({from, std::move(version)});
  hold();
}

bool PlanSwitches::settled(uint32_t seq) const {
  const MutexLock lock(mutex_);
  return std::none_of(promises_.begin(), promises_.end(),
                      [&](const auto& promise) { return !before(seq, promise.second); });
}

FabricVersionPointer PlanSwitches::version_for(uint32_t seq) {
  static const FabricVersionPointer kAtTheStart = std::make_shared<const FabricVersion>();
  const MutexLock lock(mutex_);
  while (!ahead_.empty() && !before(seq, ahead_.front().from)) {
    passed_.push_back(std::move(ahead_.front()));
    ahead_.pop_front();
    if (passed_.size() > kRemembered) passed_.pop_front();
    current_.store(passed_.back().version->number, std::memory_order_release);
  }
  hold();
  for (auto it = passed_.rbegin(); it != passed_.rend(); ++it)
    if (!shortly_before(seq, it->from)) return it->version;
  return kAtTheStart;
}

}  // namespace sennit
