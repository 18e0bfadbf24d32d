// trainer.hpp: one rank of a training run: a step is gradients of a batch, their global norm, an
// update.
//
// The loss is the mean over all targets of the batch, in nats a token. Deterministic: the same
// mesh, options and tokens give the same bits, whatever overlaps; with SENNIT_REPRODUCIBLE=1
// whatever the buckets' size, too.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/pipeline.hpp"

namespace sennit::trainer {

// What is trained and how, the same on all ranks.
struct TrainerOptions {
  LlamaConfig model;
  MeshShape mesh;
  BatchShape batch;
  Type type = Type::f32;
  int zero = 0;
  bool recompute = false, overlap = true;
  // Least gradients in one reduction, but for the last: a half of a layer or several.
  int64_t bucket_bytes = int64_t{1} << 20;
  uint64_t seed = 1;
  bool saves = false;  // checkpoints, which are written from a copy
  // With zero 1 to 3 a bucket says who owns what, and with that in which order it is summed: where
  // SENNIT_REPRODUCIBLE promises one order, it is always half a layer (0).
  int64_t unit_bytes() const;
};

// How the weights follow from one batch's gradients.
struct Update {
  AdamW adamw;     // gradient_scale is set by the step
  float clip = 0;  // the gradient's largest global norm; 0: any
};

// Loss and norm are the whole batch's, the same on all ranks; times and traffic are this rank's.
struct StepResult {
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double seconds = 0;
  double update_s = 0;  // of which the update's own computing
  Traffic::Times traffic;
};

// Of all data ranks: to be added up over batches.
struct Evaluation {
  double loss = 0, targets = 0;  // summed over targets; how many
};

// One rank's share of the model, on one thread; all ranks of the job make the same calls. Device
// and traffic must outlive it. An error of the device or of a transfer is the job's, and every
// later call gives it. A loss or a gradient that is not finite is an error of its step alone, which
// leaves the weights as they were.
class Trainer {
 public:
  // Collective. traffic: that of `job`. Errors: what does not divide; no memory.
  static Result<std::unique_ptr<Trainer>> create(const TrainerOptions& options, Device& device,
                                                 std::unique_ptr<Communicator> job,
                                                 Traffic* traffic);
  ~Trainer();

  // tokens: this data rank's share of the batch, [sequences / data, length + 1].
  Result<StepResult> step(std::span<const int32_t> tokens, const Update& update);
  // The first half of a step: gradients stay to be looked at, weights as they are.
  Result<StepResult> gradients(std::span<const int32_t> tokens);
  // The seconds of gradients() where nothing is sent: no overlap can make a step shorter than that
  // and its update. What it computes is thrown away; weights stay as they are.
  Result<double> rehearse(std::span<const int32_t> tokens);
  // Of `sequences` sequences on each data rank, without gradients; targets below 0 are left out.
  Result<Evaluation> evaluate(std::span<const int32_t> tokens, int64_t sequences);
  // The logits of the token after `tokens`, of which there are at most longest(); the same on all
  // ranks.
  Result<std::vector<float>> next_logits(std::span<const int32_t> tokens);

  Parameters& parameters() { return *parameters_; }
  const Mesh& mesh() const { return mesh_; }
  // Whether transfers go on while the next steps compute. Changes no bit. All ranks alike.
  void set_overlap(bool overlap) { traffic_->set_overlap(overlap); }
  int64_t longest() const { return options_.batch.length; }  // tokens that next_logits() takes
  size_t activation_bytes() const { return pool_.bytes(); }
  Communicator& world() { return *mesh_.world; }

 private:
  Trainer(const TrainerOptions& options, Device& device, Traffic* traffic);
  Status prepare();
  Status run(const std::function<void()>& work);
  Status not_finite(std::span<const int32_t> tokens, double loss);
  Status sum_over_ranks(double* values, size_t count);

  TrainerOptions options_;
  Device& device_;
  Traffic* traffic_;
  Mesh mesh_;
  Pool pool_;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Pipeline> pipeline_;
  PooledMatrix cosines_, sines_;
  int64_t steps_ = 0;  // begun
};

}  // namespace sennit::trainer
