// train_plan.cpp: see train_plan.hpp.
#include "train_plan.hpp"

#include <algorithm>

namespace sennit::trainer {

training::Mesh planner_mesh(const MeshShape& mesh) {
  training::Mesh planned;
  planned.sizes = {mesh.tensor, mesh.context, mesh.pipeline, mesh.data};
  return planned;
}

std::vector<training::Traffic> planned_traffic(const TrainerOptions& options) {
  using training::Axis;
  const MeshShape& mesh = options.mesh;
  const LlamaConfig& model = options.model;
  const auto width = static_cast<double>(bytes_of(options.type));
  const auto micro = static_cast<double>(options.batch.micro_batches(mesh));
  const double rows = static_cast<double>(options.batch.micro * options.batch.length) / mesh.context;
  const auto layers = static_cast<double>(model.layers / mesh.pipeline);
  const auto hidden = static_cast<double>(model.hidden);
  const double again = options.recompute ? 1 : 0;
  std::vector<training::Traffic> calls;
  if (mesh.tensor > 1) {
    const double bytes = rows * hidden * width, times = micro * (layers * (4 + 2 * again) + 1);
    calls.push_back({Axis::tensor, "tp", "all_gather", "activations", bytes, times, false});
    calls.push_back({Axis::tensor, "tp", "reduce_scatter", "activations", bytes, times, false});
  }
  if (mesh.context > 1) {
    const auto kv = static_cast<double>(2 * model.kv_heads * model.head_size) / mesh.tensor;
    const double all = rows * mesh.context * kv;
    calls.push_back(
        {Axis::context, "cp", "all_gather", "keys, values", all * width, micro * layers * (2 + again), true});
    const double once_more = static_cast<double>(mesh.context) / (mesh.context - 1);  // home again
    calls.push_back({Axis::context, "cp", "reduce_scatter", "their gradients", all * 4 * once_more,
                     micro * layers, true});
  }
  if (mesh.pipeline > 1) {
    const double bytes = rows / mesh.tensor * hidden * width, times = micro * mesh.stage_chunks;
    calls.push_back({Axis::pipeline, "pp", "send_recv", "activations", bytes, times, true});
    calls.push_back({Axis::pipeline, "pp", "send_recv", "their gradients", bytes, times, true});
  }
  if (mesh.data * mesh.context > 1) {
    double held = 0;  // by the stage that has most
    for (int p = 0; p < mesh.pipeline; p++) {
      Coordinates at;
      at.pipeline = p;
      held = std::max(held, static_cast<double>(make_layout(model, mesh, at, 0).elements()));
    }
    const std::string groups = mesh.context == 1 ? "dp" : mesh.data == 1 ? "cp" : "dp x cp";
    const double reductions = options.zero >= 2 ? micro : 1, gathers = options.zero == 3 ? 2 * micro : 1;
    if (options.zero == 0) {
      calls.push_back({Axis::data, groups, "all_reduce", "gradients, f32", held * 4, 1, true});
    } else {
      calls.push_back({Axis::data, groups, "reduce_scatter", "gradients, f32", held * 4, reductions, true});
      calls.push_back({Axis::data, groups, "all_gather", "weights", held * width, gathers, true});
    }
  }
  return calls;
}

StepPlan plan_step(const TrainerOptions& options, const training::Layout& layout,
                   double flops_per_s_of_rank) {
  StepPlan plan;
  const BatchShape& batch = options.batch;
  const double flops =
      static_cast<double>(batch.sequences * batch.length) * options.model.flops_per_token(batch.length);
  // Operations done again with recompute: the forward pass, a third of what counts.
  plan.compute_s =
      flops * (options.recompute ? 4.0 / 3 : 1) / options.mesh.ranks() / (kEfficiency * flops_per_s_of_rank);
  plan.bubble_s = plan.compute_s * (options.mesh.pipeline - 1) /
                  static_cast<double>(options.mesh.stage_chunks * batch.micro_batches(options.mesh));
  for (const training::Traffic& call : planned_traffic(options)) {
    const double seconds = least_time(call, layout).seconds * call.times;
    (call.hidden && options.overlap ? plan.hidden_s : plan.waited_s) += seconds;
  }
  const double too_much = std::max(0.0, plan.hidden_s - plan.compute_s);
  plan.hidden_s -= too_much;
  plan.waited_s += too_much;
  return plan;
}

}  // namespace sennit::trainer
