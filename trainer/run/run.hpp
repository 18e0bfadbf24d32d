// run.hpp: a whole run: data, model, resume, steps, held-out losses, checkpoints, sampled text,
// report.
//
// Every rank calls it. Rank 0 speaks.
#pragma once

#include "trainer/run/config.hpp"
#include "trainer/run/report/log.hpp"

namespace sennit::trainer {

class Tokenizer;

// SIGINT and SIGTERM end a run after the step under way, with its checkpoint and page. Gives the
// signal that did, or 0. Errors: the user's (nothing was begun), the machine's, or the run's.
Result<int> run_training(const TrainConfig& config, std::unique_ptr<Communicator> job,
                         Traffic* traffic);

// Rank 0, at the end: the curve and the figures on the screen, and the page. ended: why before its
// time, or "".
Status report_run(const TrainLog& log, const TrainConfig& config, const TrainerOptions& options,
                  const std::string& sample, const std::string& ended);

// `tokens` followed by what the model makes of them; the same on all ranks.
Result<std::vector<int32_t>> sample_tokens(Trainer& trainer, std::vector<int32_t> tokens,
                                           int64_t count, double temperature, uint64_t seed);
// As text, behind the settings' prompt.
Result<std::string> sample_text(Trainer& trainer, const TrainConfig& config,
                                const Tokenizer& tokenizer);

}  // namespace sennit::trainer
