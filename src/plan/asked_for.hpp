// asked_for.hpp: a plan that an option, a tuning file or rank 0 asked for is verified before it
// first runs.
//
// What the planner chooses by itself comes from the algorithms' own candidates, which the tests
// verify on random trees; nobody has verified what stands in a file. The programs of all ranks are
// made and verified (verify/verify.hpp), in place and not, since ranks may differ in that. Above
// kVerifiedRanks ranks this would take seconds on each of them, so that there the same parameters
// are verified on a like tree of at most that many: as many tiers, the widest fan-outs cut down to
// one size. The verdict follows from what all ranks know alike, so every one comes to it without a
// message; it holds for all sizes and types and is kept. One thread. Cost: of verify(), once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "plan/planner.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

inline constexpr int kVerifiedRanks = 64;

// At most `ranks` of them, in as many tiers as `tree` has.
TierTree smaller_tree(const TierTree& tree, int ranks);

// Whether these programs do what the request says, cheaply above kVerifiedRanks ranks. Errors: what
// is wrong.
Status verify_plan(const TierTree& tree, const Request& request, const Plan& plan);

// The verdicts on what was asked for on one tree.
class AskedFor {
 public:
  // Ok at once where the plan is the planner's own.
  Status check(const TierTree& tree, const Request& request, const Plan& plan);

 private:
  struct Verdict {
    Request request;  // without what programs do not depend on
    std::string algorithm;
    Parameters parameters;
    Status status;
  };
  std::deque<Verdict> verdicts_;  // the latest first
};

}  // namespace sennit
