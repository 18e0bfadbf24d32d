// plan_cache.cpp: see api/call/plan_cache.hpp.
#include "api/call/plan_cache.hpp"

#include <utility>

namespace sennit {

PlanCache::Entry* PlanCache::find(const Key& key) {
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!(it->key == key)) continue;
    if (it != entries_.begin()) entries_.splice(entries_.begin(), entries_, it);
    return &entries_.front();
  }
  return nullptr;
}

PlanCache::Entry& PlanCache::add(Key key, std::shared_ptr<const Prepared> prepared) {
  entries_.push_front({std::move(key), std::move(prepared), {}});
  if (entries_.size() > kMostEntries) {
    std::list<Entry> evicted;
    evicted.splice(evicted.begin(), entries_, std::prev(entries_.end()));
    destroy(std::move(evicted));
  }
  return entries_.front();
}

void PlanCache::give_back(std::unique_ptr<Execution> execution) {
  for (Entry& entry : entries_) {
    if (entry.prepared.get() != &execution->prepared()) continue;
    entry.idle.push_back(std::move(execution));
    return;
  }
  const MutexLock lock(engine_.mutex());
  execution.reset();
}

void PlanCache::forget(Collective collective) {
  std::list<Entry> forgotten;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto next = std::next(it);
    if (it->key.variant == kPlanned && it->key.role == Role::collective &&
        it->key.request.collective == collective)
      forgotten.splice(forgotten.begin(), entries_, it);
    it = next;
  }
  destroy(std::move(forgotten));
}

void PlanCache::clear() { destroy(std::exchange(entries_, {})); }

void PlanCache::destroy(std::list<Entry> entries) {
  if (entries.empty()) return;
  const MutexLock lock(engine_.mutex());
  entries.clear();
}

}  // namespace sennit
