// plan_cache.hpp: what calls were prepared to, with Executions that are idle, so that a call that
// is made again plans nothing and allocates nothing. The least recently used goes first.
//
// Behind Preparation's lock. Executions give their scratch back to the engine when they are
// destroyed, so that happens under its lock, which the caller must not hold. Cost of find(): one
// comparison for the request that came last, else linear in the requests kept.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include "engine/engine.hpp"
#include "engine/execution.hpp"
#include "schedule/prepared.hpp"
#include "schedule/request.hpp"

namespace sennit {

class PlanCache {
 public:
  // What a program was made for: a collective, or one end of a message.
  enum class Role : uint8_t { collective, send, receive };
  // Whose memory it is on; of a device's, whether it is part of a graph.
  enum class Where : uint8_t { host, device, graph };
  static constexpr size_t kPlanned = 0;
  struct Key {
    Request request;
    Role role = Role::collective;
    size_t variant = kPlanned;  // the plan; else trial plan number variant - 1
    Where where = Where::host;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const Prepared> prepared;
    std::vector<std::unique_ptr<Execution>> idle;
  };
  static constexpr size_t kMostEntries = 128;

  explicit PlanCache(Engine& engine) : engine_(engine) {}
  ~PlanCache() { clear(); }
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // Null: not there. What is returned lives until the next add(), forget() or clear().
  Entry* find(const Key& key);
  Entry& add(Key key, std::shared_ptr<const Prepared> prepared);
  // For the next call like this one; destroyed where its entry is gone.
  void give_back(std::unique_ptr<Execution> execution);
  // Plans of this collective, other than those on trial.
  void forget(Collective collective);
  void clear();
  size_t size() const { return entries_.size(); }

 private:
  void destroy(std::list<Entry> entries);
  Engine& engine_;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace sennit
