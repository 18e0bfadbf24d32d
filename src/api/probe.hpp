// probe.hpp: probing a running job: what topology/probe/probe.hpp wants to know is measured between
// one rank of every host, rank 0 draws the conclusions. Collective over the job. Time: about a
// second a round of rates, a few milliseconds a round trip; bytes: what the links carry in that
// time. Nothing is sent where a result for the same hosts is in the cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/context.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit {

// Which hosts to measure between, the same on all ranks; and how, which counts on rank 0.
struct ProbeRequest {
  std::vector<int> rank_of_host;   // one rank a host, ascending
  std::vector<std::string> names;  // of these hosts
  // Round trips one after the other, where hosts share cores and would disturb each other.
  bool one_pair_at_a_time = false;
  bool again = false;  // do not look into the cache
};

// Rank 0: what was learned, to be merged with `known`; other ranks: an empty fabric.
Result<Fabric> run_probe(const std::shared_ptr<Context>& context, const ProbeRequest& request,
                         const Fabric& known);

}  // namespace sennit
