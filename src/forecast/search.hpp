// search.hpp: the mesh for a job on so many GPUs: the one with most tokens a second of those that
// fit the memory, all in the order tensor, context, pipeline, data.
//
// Sizes are powers of two, but for the data dimension, which takes the rest; tensor ranks stay
// within a host and are at most 8, a context rank keeps 2,048 tokens of a sequence or more. Cost:
// of a few dozen layouts.
#pragma once

#include "forecast/step.hpp"

namespace sennit::forecast {

// What a mesh must be like to be compared.
struct Search {
  // a step should have, in all data-parallel groups together; more only if none has so few
  double sequences = 0;
  int batch = 0;   // sequences of each group, where that is given instead; else 0
  int tensor = 0;  // this size alone; 0: any
  int ranks_per_host = 1;
};
// `job` but for mesh, batch and interleaving. Errors: none fits, with check_memory's text of the
// one that is closest; or none is possible at all, with check()'s.
Result<Job> fastest_job(const Job& job, const GpuFabric& network, int gpus, const Search& search);

}  // namespace sennit::forecast
