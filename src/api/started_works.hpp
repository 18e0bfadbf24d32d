// started_works.hpp: the works of a communicator that are under way: those that somebody finishes,
// those that nobody waits for, and those that are part of a graph.
//
// Any thread. The lock is held for its lists alone: no work is waited for, finished or destroyed
// behind it.
#pragma once

#include <memory>
#include <vector>

#include "api/state/communicator_state.hpp"
#include "api/work.hpp"
#include "base/mutex.hpp"
#include "engine/engine.hpp"

namespace sennit {

class StartedWorks {
 public:
  // Both outlive this.
  StartedWorks(const CommunicatorState& state, Engine& engine) : state_(state), engine_(engine) {}
  StartedWorks(const StartedWorks&) = delete;
  StartedWorks& operator=(const StartedWorks&) = delete;

  // From its start to its end, but for one that is part of a graph.
  void add(Work& work) SENNIT_EXCLUDES(mutex_);
  void remove(Work& work) SENNIT_EXCLUDES(mutex_);
  Work* any() SENNIT_EXCLUDES(mutex_);  // of them, or null

  // Takes over a started work that nobody waits for. It is finished by a later keep(), when it is
  // done, or by settle().
  void keep(std::shared_ptr<Work> work) SENNIT_EXCLUDES(mutex_);
  void settle() SENNIT_EXCLUDES(mutex_);  // waits for all of them, and leaves all graphs
  void leave_graphs() SENNIT_EXCLUDES(mutex_);

 private:
  const CommunicatorState& state_;
  Engine& engine_;
  Mutex mutex_;
  std::vector<Work*> outstanding_ SENNIT_GUARDED_BY(mutex_);  // started and not finished
  std::vector<std::shared_ptr<Work>> kept_ SENNIT_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Work>> captured_ SENNIT_GUARDED_BY(mutex_);  // in graphs
};

}  // namespace sennit
