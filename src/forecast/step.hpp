// step.hpp: how long a step of a training job takes, and where the time goes.
//
// A physical model with few constants, the same for every job. One pipeline stage's layers on one
// microbatch:
//   matmul       6 * parameters * tokens / tensor ranks, at `matmul` of the peak
//   attention    causal, 3.5/3 of what MFU counts (the backward pass computes the scores again), at
//                `attention` of the peak
//   elementwise  norms, rotations, gates, residuals: bytes over memory's rate times `memory`
//   tp           8 all-gathers or reduce-scatters of tokens * width a layer, none hidden (the 2
//                more of the backward pass run beside matrix products: Korthikanti et al., arXiv
//                2205.05198)
//   cp           keys and values gathered forward and backward, their gradients scattered; none
//                hidden (Llama 3, section 3.3.2)
// Pipelining: with p stages, v chunks of layers on each and m microbatches, a stage works m of the
// (max(m,p) v + min(m,p) - 1)/v rounds; for m >= p that is Llama 3's bubble (p-1)/(v m). Sending
// between stages is hidden by the chunk computed meanwhile, except while the pipeline fills and
// drains. Weights are gathered and gradients scattered chunk by chunk beside the first and the last
// min(m,p) microbatches; the first chunk's weights and the last one's gradients are waited for.
// Pure. Left out: stragglers, input, checkpoints (forecast/cost.hpp), kernels' start-up times.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "forecast/hardware.hpp"
#include "forecast/mesh.hpp"
#include "forecast/model.hpp"
#include "forecast/network.hpp"

namespace sennit::forecast {

inline constexpr int kMostBatch = 1 << 27;  // sequences of a data-parallel group, a step
inline constexpr double kWeightBytes = 2, kActivationBytes = 2;  // of a value: bf16

// A figure that the model takes from measurements, and where it is from.
struct Constant {
  const char* name;
  double value;
  const char* source;
};
// What the model takes from measurements.
struct Constants {
  Constant matmul = {
      "matmul", 0.54,
      "fitted to Llama 3's table 4, with all that the model leaves out (stragglers, clocks under "
      "load, kernels' starts); the best single product reaches 0.79 of an H100's peak (780 "
      "TFLOP/s, H. He, H100 peak matmul FLOPS)"};
  Constant attention = {
      "attention", 0.54,
      "fitted to Llama 3's table 4; FlashAttention-2 reaches 0.35 of an H100's peak, "
      "FlashAttention-3 up to 0.75 (arXiv 2407.08608)"};
  Constant memory = {"memory", 0.90, "assumed: a streaming kernel's share; it hardly matters"};
  Constant scale_up = {
      "scale_up", 0.80,
      "nccl-tests all_gather on 8 H100: 360 of 450 GB/s, as expected (NVIDIA/nccl-tests #326)"};
  Constant network = {"network", 0.94, "46 to 48 of 50 GB/s for each NIC (NVIDIA/nccl-tests #290)"};
  std::array<Constant*, 5> all() { return {&matmul, &attention, &memory, &scale_up, &network}; }
  std::array<const Constant*, 5> all() const {
    return {&matmul, &attention, &memory, &scale_up, &network};
  }
};

// What is kept of a layer's forward pass for the backward pass.
enum class Recompute : uint8_t {
  none,   // everything that a product needs
  cheap,  // not what norms and gates give: that is computed again, in passing
  full    // the layer's input alone: the whole layer is computed again
};
std::string_view name(Recompute recompute);

// A training job: what is trained, on what, and how it is laid out.
struct Job {
  Model model;
  Accelerator gpu;
  Mesh mesh;
  int sequence = 8192;
  int batch = 0;       // sequences of each data-parallel group, a step
  int microbatch = 1;  // sequences
  double tokens = 15.6e12;
  int zero = 1;  // 0: all-reduce; 1: optimizer sharded; 2: gradients too; 3: weights too
  Recompute recompute = Recompute::cheap;
  int interleave = 0;  // chunks of layers on a stage; 0: one layer a chunk
  Constants constants;

  // As many sequences for each data-parallel group, in whole microbatches, as come closest to so
  // many in all; kMostBatch at most.
  void share_out(double sequences);
  int microbatches() const { return batch / microbatch; }
  double tokens_per_step() const {
    return static_cast<double>(batch) * sequence * mesh.size(Axis::data);
  }
  double tokens_per_microbatch() const {  // on one GPU before tensor parallelism
    return static_cast<double>(microbatch) * sequence / mesh.size(Axis::context);
  }
  double flops_per_step() const { return tokens_per_step() * model.flops_per_token(sequence); }
};
// What is off: sizes that do not divide, more stages than layers, ...
Status check(const Job& job);

// The busiest pipeline stage, as layers are best shared out when the output layer weighs as what it
// computes.
struct Stage {
  int layers = 0;       // of the stage that takes longest
  int most_layers = 0;  // of any; fewer are where the output layer is
  int chunks = 1;       // that these are cut into
  // output layers that come on top of `layers`: 1 without a pipeline, else 0 or 1
  double outputs = 0;
  double parameters = 0;  // of the stage with most, before tensor parallelism
};
Stage busiest_stage(const Job& job);

// One kind of call that a dimension makes.
struct Traffic {
  Axis axis = Axis::tensor;
  std::string groups;      // "dp x cp"
  std::string collective;  // "all_gather"
  std::string of;          // "activations"
  double bytes = 0;        // M: the whole vector; of pp, what is sent
  double times = 0;        // a step, by each GPU of the busiest stage
  bool hidden = false;     // runs beside computing where it can
};
std::vector<Traffic> traffic(const Job& job);

// A mesh laid on a network: the dimensions' groups with their loads.
struct MeshLayout {
  struct Dimension {
    Groups groups;
    Load load;
    double messages_s =
        0;  // of a whole collective: a logarithmic number of messages, without bytes
  };
  // by Axis; data: over data and context, which hold the same weights
  std::array<Dimension, kAxes> of;
  const GpuFabric* network = nullptr;
};
MeshLayout lay_out(const Mesh& mesh, const GpuFabric& network, const std::vector<int>& positions);
double seconds_of(const Traffic& call, const MeshLayout& layout, const Constants& constants);
// all groups at once, at full rates
SetBound least_time(const Traffic& call, const MeshLayout& layout);

// How long a step takes, in seconds, and how good that is.
struct StepTime {
  // The busiest stage's own work, then what is waited for; they sum up to `total`.
  double matmul = 0, attention = 0, elementwise = 0, tensor = 0, context = 0;
  double bubble = 0, pipeline = 0, data = 0, optimizer = 0;
  double total = 0;
  double data_hidden = 0;  // of the data-parallel transfers
  double flops = 0;        // that MFU counts, of the whole job
  double mfu = 0;
  double tokens_per_s = 0;
};
StepTime step_time(const Job& job, const MeshLayout& layout);

}  // namespace sennit::forecast
