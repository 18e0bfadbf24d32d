// train_run.hpp: a whole run: data, model, resume, steps, held-out losses, checkpoints, sampled text, report.
//
// Every rank calls it. Rank 0 speaks.
#pragma once

#include "train_config.hpp"

namespace sennit::trainer {

// Errors: the user's (nothing was begun), the machine's, or the run's.
Status run_training(const TrainConfig& config, std::unique_ptr<Communicator> job, Traffic* traffic);

// `tokens` followed by what the model makes of them; the same on all ranks.
Result<std::vector<int32_t>> sample_tokens(Trainer& trainer, std::vector<int32_t> tokens, int64_t count,
                                           double temperature, uint64_t seed);

}  // namespace sennit::trainer
