// call_trials.hpp: which calls take part in autotuning, and how the trials of each kind stand.
//
// A call takes part where SENNIT_TUNE asks for it, nothing like it is in the tuning table yet, and
// it is not of a group, whose calls may be prepared in another order than they are started. Behind
// Preparation's lock; the same on all ranks.
#pragma once

#include <cstdint>
#include <list>
#include <utility>

#include "api/call/call.hpp"
#include "api/call/planning.hpp"
#include "plan/tuning/trials.hpp"

namespace sennit {

class CallTrials {
 public:
  // Whether a call like this takes part where tuning is on.
  static bool takes_part(const Call& call, int ranks);

  // For trials that begin from now on.
  void set_effort(Trials::Effort effort) { effort_ = effort; }
  // Null: there are none. What is returned lives until restart().
  Trials* find(const Request& request);
  const Trials* find(const Request& request) const;
  // Begins trials; null where the tuning table has an answer already.
  Result<Trials*> begin(const Request& request, const Planning& planning);
  // Tries anew, also what the tuning table has an answer to.
  void restart();

 private:
  Trials::Effort effort_;
  bool try_known_ = false;  // also what the tuning table has an answer to
  // By request without in_place, in which ranks may differ.
  std::list<std::pair<Request, Trials>> trials_;
};

}  // namespace sennit
