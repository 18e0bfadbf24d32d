// self_messages.hpp: sends and receives of a rank to itself, which wait for each other here and are
// copied when both are there. No transport sees them.
//
// One thread, the communicator's: so a half that is waited for while its other half was not started
// would wait for ever, and is withdrawn instead.
#pragma once

#include <deque>
#include <memory>

#include "api/call/call.hpp"
#include "base/status.hpp"

namespace sennit {

class SelfMessages {
 public:
  // Becomes true when the other half has come and the bytes are where they belong.
  using Matched = std::shared_ptr<bool>;

  // Starts a half. Halves of one tag meet in the order in which they were started; SENNIT_MISMATCH,
  // as between two ranks, where they differ. `world_rank` and `comm` are for that error.
  Status start(const Call& call, const Matched& matched, uint32_t comm, int world_rank);
  // Gives up one that nothing has come for. Returns the error that its caller gets.
  Status withdraw(const Call& call, const Matched& matched);

 private:
  struct Half {
    Call call;
    Matched matched;
  };
  std::deque<Half> sends_, receives_;  // without their other half
};

}  // namespace sennit
