// resume.hpp: which checkpoint a run goes on from, and that all ranks go on from the same one.
//
// Rank 0 chooses and says name and checksum of the manifest; every rank opens what it sees under
// that name and compares. What lies in the checkpoint folder and is not gone on from is set aside,
// so that neither `keep_last` counts it nor a later start takes it for this run's.
#pragma once

#include <cmath>
#include <span>
#include <string>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/run/config.hpp"

namespace sennit::trainer {

// How far a run has come, and from where; as it stands here, one that begins anew.
struct Resumed {
  std::string folder;      // the checkpoint's; empty: none
  int64_t step = 0;        // the last that is done
  double best = INFINITY;  // the lowest held-out loss
  double seconds = 0;      // that the run has taken, what came before this start counted
  int64_t evaluations_without_better = 0;
};

// The other half: what goes on with a checkpoint beside the tensors.
nlohmann::json state_of(const Resumed& run, const nlohmann::json& loader_position);

// Collective over all ranks as started. Fills the pieces' data and places the loader. Errors,
// before anything is trained and the same on all ranks: rank 0 speaks.
Status resume_run(const TrainConfig& config, const LlamaConfig& model, Communicator& job,
                  std::span<const TensorPiece> pieces, Loader& loader, Resumed* resumed);

}  // namespace sennit::trainer
