// presence.hpp: a rank's way into a new job. Where every rank of it is already in one and the same
// older job, the new communicator is made there, with no connection, descriptor or thread of its
// own; what its ranks must agree on before they exchange is agreed on at the start, in
// control/rank/sharing.hpp. Else the job gets a context of its own.
//
// Only contexts are shared that would be made anew just so: the same settings, no failure. What is
// destroyed, or fails, is a communicator; the context stays while one of them lives. Where ranks
// are threads, each has contexts of its own, and a new job may give a thread any of its process's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/context.hpp"

namespace sennit {

// Where the new communicator is to be made.
struct Presence {
  std::shared_ptr<Context> context;
  uint32_t number = 0;       // of the communicator
  std::vector<int> members;  // the context's ranks, by rank in the communicator
  // Until the communicator is made: others may have made it already.
  std::unique_ptr<Registry::Making> making;
};

// Collective over the ranks of `bootstrap`.
Result<Presence> join_job(BootstrapOptions bootstrap, const JobSettings& settings);

}  // namespace sennit
