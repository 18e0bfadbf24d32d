// group_channel.hpp: what some members of a communicator tell each other to make another one out of
// it, alone: messages beside its calls. They go also where the communicator was aborted; not where
// a member is dead, since it is not decided here who goes on without it.
//
// Several threads may ask at once. Cost: three messages a member, up and down a binomial
// tree and up again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/context.hpp"
#include "api/state/communicator_state.hpp"
#include "engine/mailbox.hpp"

namespace sennit {

class GroupChannel {
 public:
  // `of` and `context` outlive this.
  GroupChannel(Context& context, CommunicatorState& of);
  ~GroupChannel();
  GroupChannel(const GroupChannel&) = delete;
  GroupChannel& operator=(const GroupChannel&) = delete;

  // SENNIT_INVALID_ARGUMENT where a group cannot be made of these ranks by the one that asks.
  static Status check(const CommunicatorState& of, const std::vector<int>& ranks, int tag);
  // Gives the first of `ranks` a number of a communicator, and tells it to the others. `ranks`: of
  // the communicator, the same on all of them, this rank among them, as check() has it. `tag` tells
  // the calls of several threads apart.
  Result<uint32_t> agree_on_number(const std::vector<int>& ranks, int tag);

 private:
  // One number to (from) the rank, which has to come with the same signature. `making`: what this
  // rank says of it while nobody comes.
  Status exchange(bool receiving, int rank, const CallDescriptor& making, uint32_t* number);
  void await(const Execution& execution, CallDescriptor making);

  Context& context_;
  CommunicatorState& of_;
  CommunicatorState channel_;  // the same members, and a number of its own
  Mailbox mailbox_;
  const std::vector<int> world_;  // of the two ends of a message; it is told its peer otherwise
};

}  // namespace sennit
