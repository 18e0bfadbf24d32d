// config.hpp: the settings of `sennit train`: one table gives the keys of the JSON file, the
// options of the command line (--micro-batch for micro_batch, which win over the file), and the
// help of both.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trainer/run/trainer.hpp"

namespace sennit::trainer {

// A run as its user wants it. What each setting means, in which unit and which values have a
// meaning of their own, its help says: train_settings().
struct TrainConfig {
  // JSON text of a Hugging Face config; in the file an object, or the name of such a file
  std::string model;
  std::string data, checkpoint_dir, report_dir;
  std::string precision = "bf16", backend = "sennit", device = "cpu", resume = "yes", prompt;
  // dp 0: all ranks that are left
  int64_t dp = 0, tp = 1, pp = 1, cp = 1, stage_chunks = 1, zero = 0;
  int64_t sequence = 512, batch = 8, micro_batch = 1;
  int64_t steps = 100, evaluate_every = 0, evaluate_batches = 0, patience = 0;
  int64_t save_every = 0, keep_last = 3;
  int64_t bucket_bytes = int64_t{1} << 20, threads = 0, seed = 1, log_every = 1;
  int64_t sample_tokens = 100;
  bool recompute = false, overlap = true, measure_overlap = false;
  double learning_rate = 1e-3, least_learning_rate = 1e-4, weight_decay = 0.1, beta1 = 0.9,
         beta2 = 0.95;
  double epsilon = 1e-8, clip = 1, temperature = 0.8, nominal_tflops = 0, seconds = 0;
  int64_t warm_up_steps = 20;

  Type type() const { return precision == "bf16" ? Type::bf16 : Type::f32; }
  MeshShape mesh(int ranks) const;  // with dp 0 worked out; check_mesh() says whether it fits
  BatchShape batch_shape() const {
    return {.sequences = batch, .micro = micro_batch, .length = sequence};
  }
  // Warm-up, then half a cosine down to the least. step counts from 1; time_share: of `seconds`,
  // where the run's end is given so.
  float learning_rate_at(int64_t step, double time_share) const;
};

// One row of the table: `field` has the setting's type and its default.
struct Setting {
  const char* key;
  std::variant<int64_t TrainConfig::*, double TrainConfig::*, bool TrainConfig::*,
               std::string TrainConfig::*>
      field;
  const char* help;
  std::string option() const;  // "--micro-batch"
};
std::span<const Setting> train_settings();  // in the order in which the help shows them

// Errors: no JSON object; a key twice, or an unknown one, with the nearest known; a value of the
// wrong kind.
Status read_train_config(const std::string& file, TrainConfig* config);
// file: what errors name; a file of the model is looked for beside it.
Status parse_train_config(const std::string& text, const std::string& file, TrainConfig* config);
// As a command line gives it: a string without quotes, all else as JSON has it.
Status set_from_text(const Setting& setting, const std::string& text, TrainConfig* config);
// What no mesh or model makes right: an unknown precision, a learning rate below 0, a wish that
// another setting makes empty, ...
Status check_train_config(const TrainConfig& config);
// The model's shape; a vocab_size that is not given is the data's.
Result<LlamaConfig> model_of(const TrainConfig& config, int64_t vocabulary);
// On so many ranks.
TrainerOptions trainer_options(const TrainConfig& config, const LlamaConfig& model, int ranks);

}  // namespace sennit::trainer
