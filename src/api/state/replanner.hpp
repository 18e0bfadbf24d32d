// replanner.hpp: at the coordinator: whether the job plans anew because of what the watch has
// found.
//
// It does where the simulator promises a gain of a tenth, for the calls by which a slow link was
// found. What was slow and is well again is planned for as it was before, whatever that gains.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/process/background.hpp"
#include "plan/planner.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/fabric/slow_boundary.hpp"
#include "watch/live_verdict.hpp"

namespace sennit {

// What it finds out takes up to seconds of a core, and calls go first.
class Replanner {
 public:
  // Where all ranks come to plan by what is found, as Replanning does it. Called on a thread of
  // this object.
  struct Proposals {
    std::function<void(std::vector<SlowBoundary>)> propose;
    std::function<std::vector<SlowBoundary>()> proposed;  // the latest
  };
  // All of it outlives this.
  Replanner(const Fabric& fabric, const std::vector<Placement>& placements,
            const PlanOptions& options, Proposals proposals)
      : fabric_(fabric),
        placements_(placements),
        options_(options),
        proposals_(std::move(proposals)) {}

  // A verdict of the watch, which may be withdrawn. What follows from it is proposed later on.
  void heard(const watch::LiveVerdict& verdict) {
    background_.post([this, verdict] { follow(verdict); });
  }
  // From now on nothing is proposed.
  void end() { background_.end(); }

 private:
  // Whose calls say so: a communicator's number, and its members.
  using Who = std::pair<uint32_t, std::vector<int>>;

  void follow(const watch::LiveVerdict& verdict);
  std::vector<SlowBoundary> all_known() const;
  Result<TierTree> tree_of(const std::vector<int>& members) const;

  const Fabric& fabric_;
  const std::vector<Placement>& placements_;
  const PlanOptions& options_;
  const Proposals proposals_;
  std::map<Who, std::vector<SlowBoundary>> known_;
  Background background_{"sennit-replan"};  // last: its tasks use the others
};

}  // namespace sennit
