// dry_run.hpp: `sennit train CONFIG --dry-run`: mesh, memory, traffic by tier, predicted step
// time; nothing is trained.
#pragma once

#include "trainer/run/config.hpp"

namespace sennit::trainer {

// What to reckon with where the mesh and this host do not say it; memory is in bytes.
struct DryRun {
  int ranks = 0;                 // 0: as many as the mesh has
  std::string fabric;            // as `sennit topo` takes it; empty: what this host knows
  uint64_t memory_per_rank = 0;  // 0: a rank's share of this host's, unless a fabric is given
};
// Errors: all that would stop the run: data, model, mesh, memory (where it is known).
Status dry_run(const TrainConfig& config, const DryRun& asked);

}  // namespace sennit::trainer
