// planning.hpp: how a communicator's calls are planned and made ready to run: its tree, the job's
// options, what was measured, and the verdicts on plans that somebody asked for.
//
// The tree says who is where, and how fast the fabric is by what ranks agreed on at the start; what
// traffic has shown since then comes as versions. All but tree() is behind Preparation's lock.
// Plans are the same on all ranks as long as all learn the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/call/call.hpp"
#include "api/call/plan_switches.hpp"
#include "plan/asked_for.hpp"
#include "plan/planner.hpp"
#include "plan/tuning/table.hpp"
#include "schedule/prepared.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

class Planning {
 public:
  // Whose memory a call is on. What that costs is not the same, and by that a call on a device's is
  // planned, but for sums, which have the host's bits by having the host's plan.
  enum class Memory : uint8_t { host, device };

  // `options` outlives this. Without `may_tune` what was measured does not decide.
  Planning(TierTree tree, const PlanOptions& options, bool may_tune, Tuning tuning);

  const TierTree& tree() const { return tree_; }
  // `every_chunk`: with a candidate for every number of chunks (plan/planner.hpp).
  Result<Plan> plan(const Request& request, Memory memory, bool every_chunk = false) const;
  // Without what the tuning table says.
  Result<Plan> plan_by_model(const Request& request, Memory memory) const;

  // What runs on the rank at `position` for a collective; `given`: this plan, else plan()'s.
  Result<std::shared_ptr<const Prepared>> prepare(const Request& request, Memory memory,
                                                  const Plan* given, int position);
  // For one end of a message; request.root is the other.
  std::shared_ptr<const Prepared> prepare_message(const Request& request, bool receiving,
                                                  int position) const;

  // Null where nothing was measured for the like of this request.
  const Tuned* measured(const Request& request) const {
    return version_->slow.empty() ? tuning_.find(fingerprint_, request, tree_.ranks()) : nullptr;
  }
  // The winner of trials: what it adds to the tuning table; nothing where no time was measured.
  Tuning learn(const Request& request, const Plan& winner, double measured_us);
  // Plans by this from now on.
  void use(FabricVersionPointer version);
  const FabricVersionPointer& version() const { return version_; }
  // Plans with these constants from now on.
  void calibrate(const CostModel& cost) { tuning_.set_cost(fingerprint_, cost); }

 private:
  Result<Plan> planned(const Request& request, Memory memory, bool every_chunk,
                       const Tuned* tuned) const;

  const TierTree tree_;
  FabricVersionPointer version_ = std::make_shared<const FabricVersion>();
  TierTree planned_;  // as that version has it; differs in capacities alone
  const uint64_t fingerprint_;
  const PlanOptions& options_;
  const bool may_tune_;
  Tuning tuning_;
  AskedFor asked_for_;
};

}  // namespace sennit
