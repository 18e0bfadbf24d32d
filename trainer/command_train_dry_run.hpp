// command_train_dry_run.hpp: `sennit train CONFIG --dry-run`: mesh, memory, traffic by tier, predicted step
// time; nothing is trained.
#pragma once

#include "train_config.hpp"

namespace sennit::trainer {

// ranks 0: as many as the mesh has. fabric: as `sennit topo` takes it; empty: what this host knows. Errors:
// all that would stop the run: data, model, mesh, memory.
Status dry_run(const TrainConfig& config, int ranks, const std::string& fabric);

}  // namespace sennit::trainer
